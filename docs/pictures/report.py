"""Write the report of the README, examples/report.html, and its pictures for docs/report.md."""

from pathlib import Path

import hierbench

ROOT = Path(__file__).resolve().parents[2]

report = hierbench.report(ROOT / "examples/cross-entropy.npz", tree="cifar100", against=ROOT / "examples/haframe.npz")
report.write(ROOT / "examples/report.html")
for part in ("mistakes", "rules", "against"):
    (ROOT / f"docs/pictures/report-{part}.svg").write_text(f"{report.figure(part)}\n", encoding="utf-8")
print(report, end="")
