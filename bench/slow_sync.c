/* fsync and fdatasync that take SLOW_SYNC_MS milliseconds longer: what a disk that really writes costs.
   Built and preloaded by bench/disks.py; it slows every contender alike. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void wait_as_a_disk_would(void) {
    const char *text = getenv("SLOW_SYNC_MS");
    double ms = text ? atof(text) : 0;
    if (ms <= 0)
        return;
    struct timespec pause = {(time_t)(ms / 1000), (long)((ms - 1000 * (long)(ms / 1000)) * 1e6)};
    nanosleep(&pause, NULL);
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_as_a_disk_would();
    return real(fd);
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_as_a_disk_would();
    return real(fd);
}
