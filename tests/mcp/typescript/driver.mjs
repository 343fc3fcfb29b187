// A TypeScript MCP client, told what to do in lines of JSON on stdin; it answers each with a line of JSON on stdout.
//
//   node driver.mjs '{"sdk": "sdk"|"client", "era": "legacy"|VERSION, "url": …, "token": …}'           over HTTP
//   node driver.mjs '{"sdk": …, "era": …, "command": …, "args": […], "env": {…}, "cwd": …}'             over stdio
//
// {"tools": true} gives the tools' names, {"call": NAME, "arguments": {…}} a tool's result. At the end of stdin the
// connection is closed. `sdk` is the package of the handshake protocol, `client` its successor, which knows both.

import { createInterface } from "node:readline";

const how = JSON.parse(process.argv[2]);
const say = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");

async function parts() {
  if (how.sdk === "client") {
    const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
    const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
    return { Client, StreamableHTTPClientTransport, StdioClientTransport };
  }
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
  return { Client, StreamableHTTPClientTransport, StdioClientTransport };
}

const { Client, StreamableHTTPClientTransport, StdioClientTransport } = await parts();

const headers = how.token ? { Authorization: `Bearer ${how.token}` } : {};
const transport = how.url
  ? new StreamableHTTPClientTransport(new URL(how.url), { requestInit: { headers } })
  : new StdioClientTransport({ command: how.command, args: how.args, env: how.env, cwd: how.cwd });
const mode = how.era === "legacy" ? "legacy" : { pin: how.era };
const client = new Client({ name: "typescript", version: "1" }, { versionNegotiation: { mode } });

try {
  await client.connect(transport);
} catch (error) {
  say({ refused: String(error) });
  process.exit(0);
}
say({ connected: client.getServerVersion().name, version: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion ?? null });

for await (const line of createInterface({ input: process.stdin })) {
  const wanted = JSON.parse(line);
  try {
    if (wanted.tools) {
      say({ tools: (await client.listTools()).tools.map((tool) => tool.name) });
    } else {
      const result = await client.callTool({ name: wanted.call, arguments: wanted.arguments });
      say({ result: result.structuredContent ?? null, text: result.content, failed: result.isError ?? false });
    }
  } catch (error) {
    say({ error: String(error) });
  }
}
await client.close();
say({ closed: true });
