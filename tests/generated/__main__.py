"""Run the tester: ``python -m tests.generated --networks 1000 --seed 0``."""

from __future__ import annotations

import argparse
import re
import time
import warnings

from tests.generated.case import Case, Wrong
from tests.generated.tester import BATCH, Examiner, examine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=100, help="how many, about")
    parser.add_argument("--seed", type=int, default=0, help="of the first ten networks")
    parser.add_argument("--shrink", action="store_true", help="end at the first failure, and make it small")
    parser.add_argument("--only", default="", help="failures whose words this regular expression finds")
    options = parser.parse_args()
    tester, started, wrong = Examiner(), time.monotonic(), 0

    def check(case: Case) -> None:
        nonlocal wrong
        if case in tester.seen and not options.shrink:  # one that failed fails again
            return
        try:
            tester(case)
        except Wrong as error:
            if not re.search(options.only, str(error)):
                return
            if options.shrink:
                raise
            wrong += 1
            print(f"{len(tester.seen)}: {error}\n    {case}", flush=True)

    warnings.simplefilter("ignore")
    examine(check, range(options.seed, options.seed + options.networks // BATCH), shrink=options.shrink)
    for name in ("ingredients", "paths", "looks", "held", "refusals"):
        print(name, dict(getattr(tester, name).most_common()))
    for said, case in tester.refused.items():
        print(f"refused: {said}\n    {case}")
    print(f"{len(tester.seen)} networks, {wrong} wrong, {time.monotonic() - started:.0f} seconds")


if __name__ == "__main__":
    main()
