"""Runs `run_wrap` for a test: driver.py MODULE PLAN.json EVENTS.jsonl COMMAND…"""
import importlib
import json
import os
import re
import sys
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
ACK = re.compile(r"ACK:\s*context received", re.IGNORECASE)


def main() -> int:
    module, plan_path, events_path = sys.argv[1:4]
    sys.path.append(ROOT)
    kit = importlib.import_module(module)
    with open(plan_path, encoding="utf-8") as file:
        fields = json.load(file)
    notice = fields.pop("notice", "")

    def on_event(name: str, **values: object) -> None:
        with open(events_path, "a", encoding="utf-8") as log:
            log.write(json.dumps([name, values]) + "\n")

    delivery = kit.Delivery(
        time.monotonic(), is_ack=lambda text: bool(ACK.search(text)), on_event=on_event, escalate=lambda: notice, **fields)
    return kit.run_wrap(delivery, sys.argv[4:])


if __name__ == "__main__":
    sys.exit(main())
