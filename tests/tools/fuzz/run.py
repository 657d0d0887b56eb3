"""Fuzz one kind of input with atheris: `python tests/tools/fuzz/run.py KIND [seconds]`, of the kinds in `targets.py`.

It starts from inputs that `targets.py` makes and keeps what it finds in `--corpus FOLDER`, if given. It ends with an
error at the first input that raises what no user may see, takes more than 20 seconds or 3 GB of memory, and writes that
input to the current folder as crash-*, timeout-* or oom-*; `--replay FILE` repeats it.

`--mutations N` runs without atheris: N of those inputs, changed as N random seeds say, one after the other; all that
fail are written. `--seed` is the first of the seeds.
"""

import argparse
import atexit
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# libFuzzer reads the peak of the process, which on Linux starts at that of the process that started this one.
STARTED_WITH = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # MiB

INSTRUMENTED = ["hierbench", "tarfile", "zipfile", "gzip", "tomllib", "csv", "json", "pickletools"]

KINDS = ("trees", "recipes", "records", "archives", "manifests", "predictions", "publications")


def run_mutations(targets, kind, num, first):
    """Run a target on inputs changed at random, each from a seed of its own; return 1 if one failed, else 0."""
    corpus, failed, longest = targets.seeds(kind), 0, 0.0
    for seed in range(first, first + num):
        chosen = random.Random(seed)
        data = targets.changed(chosen.choice(corpus), chosen)
        start = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("error")
                targets.TARGETS[kind](data, Path(folder))
        except Exception:  # whatever no user may see
            failed += 1
            Path(f"crash-{kind}-{seed}").write_bytes(data)
            print(f"seed {seed}: written to crash-{kind}-{seed}\n{traceback.format_exc()}", file=sys.stderr)
        longest = max(longest, time.monotonic() - start)
    print(f"{kind}: {num} inputs from seed {first}, {failed} failed; the longest took {longest:.1f} s")
    return int(failed > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("seconds", type=int, nargs="?", default=60)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--mutations", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    import targets

    if options.replay:
        with tempfile.TemporaryDirectory() as folder:
            return targets.TARGETS[options.kind](options.replay.read_bytes(), Path(folder))
    if options.mutations is not None:
        return run_mutations(targets, options.kind, options.mutations, options.seed)
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        for seed in targets.seeds(options.kind):  # imports what the target needs, which takes time
            with tempfile.TemporaryDirectory() as folder:
                targets.TARGETS[options.kind](seed, Path(folder))

    place = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))  # in memory, where it can be

    def once(data):
        folder = place / "target"
        folder.mkdir()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                targets.TARGETS[options.kind](data, folder)
        finally:
            shutil.rmtree(folder)

    atexit.register(shutil.rmtree, place, ignore_errors=True)
    corpus, seeds = options.corpus or place / "found", place / "seeds"
    for folder in (corpus, seeds):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(targets.seeds(options.kind)):
        (seeds / f"{number:02d}").write_bytes(seed)
    limits = [f"-max_total_time={options.seconds}", "-timeout=20", f"-rss_limit_mb={STARTED_WITH + 3000}"]
    atheris.Setup([sys.argv[0], *limits, "-max_len=20000", "-print_final_stats=1", str(corpus), str(seeds)], once)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
