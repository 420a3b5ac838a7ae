#!/usr/bin/env python3
"""What coding agents wait for: recorded requests, replayed against Weft and other servers.

  bench/agents.py --server 'NAME=COMMAND' [--server ...] --requests FILE [--passes LIST] MODEL

COMMAND starts a server; {model}, {port} and {state} (a folder of its own, new for each run) in it
are replaced, as in
  'weft=build/release/weft serve -m {model} --port {port} --threads 2 --state-dir {state}'
FILE has a request a line: {"agent": ..., "path": ..., "headers": {...}, "body": {...}} of OpenAI's,
Anthropic's or llama-server's API. An agent's requests are sent in their order. The passes:

  alone      one agent after the other
  together   all agents at once
  again      together once more, with a warm prefix cache
  restart    after the server was stopped and started
  kill       after it was killed, five seconds later, and started

For each pass: prompt tokens, how many of them were not computed again, seconds to the first event
that carries content, wall time. A model's context must hold the prompts.
"""
import contextlib
import http.client
import json
import statistics
import sys
import tempfile
import threading
import time

from serving import Server, arguments, chosen

LIMITS = {"/v1/chat/completions": "max_tokens", "/v1/messages": "max_tokens",
          "/v1/responses": "max_output_tokens"}
CARRIERS = ('"content":"', '"reasoning_content":"', '"tool_calls":[', "output_text.delta",
            "content_block_delta", "function_call_arguments.delta", "custom_tool_call_input.delta")
PASSES = ("alone", "together", "again", "restart", "kill")
SETTLE_SECONDS = 5


def usage_of(event):
    for place in (event, event.get("response") or {}, event.get("message") or {}):
        if isinstance(place, dict) and place.get("usage"):
            return place["usage"]
    return {}


def ask(server, request, n_tokens):
    """One request to its end: its counts and waits."""
    body = dict(request["body"], **{LIMITS[request["path"]]: n_tokens})
    body.pop("max_completion_tokens", None)
    if body.get("stream") and request["path"] == "/v1/chat/completions":
        body["stream_options"] = {"include_usage": True}
    begin = time.monotonic()
    seen = {"agent": request["agent"], "prompt": 0, "cached": 0, "first_s": None, "error": None}
    reply = server.post(request["path"], body, request.get("headers"))
    if reply.status != 200:
        seen["error"] = f"HTTP {reply.status}: {reply.read(300).decode(errors='replace')}"
    while reply.status == 200 and (line := reply.readline()):
        text = line.decode(errors="replace").strip()
        if not text.startswith(("data:", "{")):
            continue
        try:
            event = json.loads(text.removeprefix("data:"))
        except ValueError:
            continue
        if any(carrier in text for carrier in CARRIERS) and '"content":""' not in text:
            seen["first_s"] = seen["first_s"] or time.monotonic() - begin
        usage = usage_of(event)
        details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
        cached = details.get("cached_tokens") or usage.get("cache_read_input_tokens") or 0
        prompt = usage.get("prompt_tokens") or usage.get("input_tokens") or 0
        if "cache_read_input_tokens" in usage:  # Anthropic counts uncached tokens only
            prompt += cached + (usage.get("cache_creation_input_tokens") or 0)
        seen["prompt"], seen["cached"] = max(seen["prompt"], prompt), max(seen["cached"], cached)
    seen["total_s"] = time.monotonic() - begin
    return seen


def replay(server, agents, together, options):
    done = []

    def run(requests):
        for request in requests:
            try:
                done.append(ask(server, request, options.answer))
            except (OSError, http.client.HTTPException) as error:
                done.append({"agent": request["agent"], "prompt": 0, "cached": 0, "first_s": None,
                             "total_s": 0, "error": str(error)})
            if options.verbose:
                print(f"agents: {json.dumps(done[-1])}", file=sys.stderr, flush=True)

    begin = time.monotonic()
    threads = [threading.Thread(target=run, args=(requests,)) for requests in agents.values()]
    for thread in threads:
        thread.start()
        if not together:
            thread.join()
    for thread in threads:
        thread.join()
    return {"wall": time.monotonic() - begin, "done": done}


def run_passes(command, agents, options):
    """`alone` has a server and a state of its own; the other passes follow one another."""
    results = {}
    for passes in (["alone"], [name for name in PASSES if name != "alone"]):
        passes = [name for name in passes if name in options.passes]
        if not passes:
            continue
        with tempfile.TemporaryDirectory() as state, contextlib.ExitStack() as stack:
            def start():
                return stack.enter_context(Server(command, model=options.model, state=state))

            server = start()
            for name in passes:
                print(f"agents: {name}", file=sys.stderr, flush=True)
                if name == "kill":
                    time.sleep(SETTLE_SECONDS)
                    server.kill()
                    server = start()
                elif name == "restart":
                    server.stop()
                    server = start()
                results[name] = replay(server, agents, name != "alone", options)
    return results


def main():
    parser = arguments(__doc__)
    parser.add_argument("--requests", required=True, metavar="FILE")
    parser.add_argument("--agent", action="append", help="only this one; again for more")
    parser.add_argument("--passes", default="together,again", help=f"some of {','.join(PASSES)}")
    parser.add_argument("--answer", type=int, default=24, help="tokens of an answer (%(default)s)")
    parser.add_argument("--verbose", action="store_true", help="tells each request on stderr")
    options = parser.parse_args()
    options.passes = chosen(parser, options.passes, PASSES, "pass")
    agents = {}
    with open(options.requests, encoding="utf-8") as file:
        for line in file:
            request = json.loads(line)
            if not options.agent or request["agent"] in options.agent:
                agents.setdefault(request["agent"], []).append(request)

    print("| pass | server | prompt tokens | not computed again | first token, s: p50 | max "
          "| wall, s | failed |")
    print("|---|---|---|---|---|---|---|---|")
    for name, command in options.servers:
        for which, result in run_passes(command, agents, options).items():
            done = result["done"]
            firsts = [seen["first_s"] for seen in done if seen["first_s"] is not None]
            failed = [seen for seen in done if seen["error"]]
            for seen in failed:
                print(f"agents: {name}: {seen['agent']}: {seen['error']}", file=sys.stderr)
            print(f"| {which} | {name} | {sum(seen['prompt'] for seen in done)} "
                  f"| {sum(seen['cached'] for seen in done)} "
                  f"| {statistics.median(firsts) if firsts else float('nan'):.2f} "
                  f"| {max(firsts, default=float('nan')):.2f} | {result['wall']:.1f} "
                  f"| {len(failed)} of {len(done)} |", flush=True)


if __name__ == "__main__":
    main()
