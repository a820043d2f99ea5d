"""Runs `wrap` for a test: driver.py PLAN.json COMMAND…, in the project of the current folder.

The plan names the context, and what a test makes shorter than it is for people (`ack_s`, `timeout_s`).
"""
import importlib.util
import json
import os
import sys
import time

KIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "ctx_hooks.py")


def main() -> int:
    spec = importlib.util.spec_from_file_location("ctx_hooks", KIT)
    kit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kit)
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    text = plan.pop("text")
    ctx = kit.people_ctx()
    sources = [("From notes.md:", text)] if text else []
    delivery = kit.Delivery(ctx, time.monotonic(), (None, "notes.md", sources), **plan)
    code = kit.Run(delivery).run(sys.argv[2:])
    kit.write_stderr("".join(line + "\n" for line in delivery.told))
    return code


if __name__ == "__main__":
    sys.exit(main())
