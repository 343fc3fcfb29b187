"""The MCP server for HTTP, over the official SDK, which answers both eras of the protocol. `offer` is what it serves.

    server = make_server(seat_of)

`seat_of(ctx)` says from whose seat a request comes; it is asked for every request and must not block. The board is
synchronous, so every request works on a thread of its own. When a request is cancelled its thread is told: what waits
stops, and takes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from dibs.mcp import offer
from dibs.mcp.seat import Call, Gone, Seat

Context = ServerRequestContext[Any, Any]
SeatOf = Callable[[Context], Seat]

THREADS = 256
"""Requests at work at the same time. Those that wait are among them, but never more than `seat.WAITERS_IN_ALL`."""


def make_server(seat_of: SeatOf) -> Server[Any]:
    limiter: list[anyio.CapacityLimiter] = []

    async def on_thread(ctx: Context, method: str, params: offer.Params) -> offer.Result:
        if not limiter:  # it belongs to the running loop
            limiter.append(anyio.CapacityLimiter(THREADS))
        call = Call(seat_of(ctx))

        def run() -> offer.Result:
            with call:
                done = offer.ON_THE_BOARD[method](call, params)
                call.hand_over()
                return done

        taken = False
        try:
            answer = await anyio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=limiter[0])
            # The thread may have ended in the moment of the cancellation, and the SDK then writes no answer.
            await anyio.lowlevel.checkpoint_if_cancelled()
            taken = True
            return answer
        except Gone:
            raise MCPError(types.INTERNAL_ERROR, "the server is ending; nothing was changed") from None
        except offer.Refused as refused:
            raise MCPError(types.INVALID_PARAMS, refused.message, refused.data) from None
        finally:
            if call.cancel() and not taken:
                Thread(target=call.take_back, name="taking back", daemon=True).start()

    async def list_tools(ctx: Context, params: object) -> types.ListToolsResult:
        return types.ListToolsResult.model_validate(offer.LISTS["tools/list"])

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        given = {"name": params.name, "arguments": params.arguments}
        return types.CallToolResult.model_validate(await on_thread(ctx, "tools/call", given))

    async def list_resources(ctx: Context, params: object) -> types.ListResourcesResult:
        return types.ListResourcesResult.model_validate(offer.LISTS["resources/list"])

    async def list_templates(ctx: Context, params: object) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult.model_validate(offer.LISTS["resources/templates/list"])

    async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return types.ReadResourceResult.model_validate(await on_thread(ctx, "resources/read", {"uri": str(params.uri)}))

    async def list_prompts(ctx: Context, params: object) -> types.ListPromptsResult:
        return types.ListPromptsResult.model_validate(offer.LISTS["prompts/list"])

    async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        try:
            return types.GetPromptResult.model_validate(
                offer.prompt({"name": params.name, "arguments": params.arguments})
            )
        except offer.Refused as refused:
            raise MCPError(types.INVALID_PARAMS, refused.message) from None

    return Server(
        offer.SERVER["name"],
        version=offer.SERVER["version"],
        instructions=offer.INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )
