"""Prints, as JSON, everything a script can see of how it was started."""

import json
import multiprocessing
import os
import pickle
import sys

import torch


class Thing:
    def __init__(self, value: int) -> None:
        self.value = value


def square(number: int) -> int:
    return number * number


def facts() -> dict:
    main = sys.modules["__main__"]
    copied = pickle.loads(pickle.dumps(Thing(7)))
    return {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv[1:],
        "file": getattr(main, "__file__", None),
        "name": main.__name__,
        "spec": repr(main.__spec__),
        "package": repr(main.__package__),
        "builtins": type(main.__builtins__).__name__,
        "names": sorted(name for name in vars(main)),
        "path": sys.path,
        "flags": repr(sys.flags),
        "cwd": os.getcwd(),
        "stdin": sys.stdin.read(),
        "pickled": [copied.value, type(copied) is Thing],
        "environment": {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TORCH_ADVISOR_") and name not in ("PYTHONPATH", "_")
        },
        "pythonpath": [
            entry
            for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
            if entry and not entry.endswith(os.path.join("inside", "boot"))
        ],
        "meta_path": [getattr(one, "__name__", type(one).__name__) for one in sys.meta_path],
        "torch_loader": type(torch.__loader__).__name__ + type(torch.__spec__.loader).__name__,
        "frames": len([1 for _ in iter_frames()]),
        "children": [multiprocessing.active_children(), __import__("threading").active_count()],
        "own": [name for name in ("advisor", "rules", "reports") if name in sys.modules],
        "threads": torch.get_num_threads(),
    }


def iter_frames():
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


if __name__ == "__main__":
    seen = facts()
    for method in ("spawn", "forkserver", "fork"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            seen[method] = pool.map(square, [2, 3])
    print(json.dumps(seen, sort_keys=True, indent=1))
    print("to stderr", file=sys.stderr)
