"""Where boards live. Each module here implements `dibs.stores.base`."""
