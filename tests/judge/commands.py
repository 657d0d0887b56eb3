"""The commands that two commits are compared by; `{a|b}` stands for a line with each, a later `%`
for the first that was chosen, and `# kind` says what it prints: a format of a table, json, yaml, text or words, or exit
where the exit code and files alone count.

A line is carried out in a folder of its side, in this order; what it leaves there is compared too, by file.
"""

import itertools
import re
import shlex

LEFT_OUT = {  # why no line names a command
    "separate": "new, and trains as run does",
    "job": "trains, on a cluster; what it writes is a run folder",
}
KINDS = "confusion|curves|frame|levels|operating|severity|similarity|tradeoff"
FORMATS = "markdown|latex|csv|json|html"
TRAINING = "--dataset shapes --set train.epochs=1 --mlflow off --jobs 1"
ALL = f"run --methods all {TRAINING} --seeds 3"
ABLATE = f"ablate {TRAINING} --seeds 2"
TUNE = (
    f"tune --methods haframe {TRAINING} --set tune.runs=1 --set tune.grid.haframe.alpha=[0.4,0.6]"
    " --set tune.grid.haframe.gamma=[4]"
)
COLLAPSE = f"collapse {TRAINING} --seeds 1"

# Made once, by the old commit, after fixture.py.
MADE = f"""
{ALL}
publish --dataset shapes --output pub
cp -a runs whole
run --methods ce,./buggy.py --types type-I {TRAINING} --seeds 2
run --methods ce,soft_labels --types type-I --dataset shapes --set train.epochs=1 --seeds 4 --plan-only
{ABLATE}
{TUNE}
{COLLAPSE}
score scored/resnet-0.npz scored/resnet-1.npz --dataset shapes --name resnet
"""

COMPARED = f"""
leaderboard --dataset shapes --format {{{FORMATS}}}
leaderboard --dataset shapes --protocol authors --format {{{FORMATS}}}
leaderboard --dataset shapes --metrics {{+hf_macro,+ece,+fpa|top1,hops@20}} --format {{{FORMATS}}}
leaderboard --dataset cifar100 --runs cifar --format {{{FORMATS}}}
leaderboard --dataset cifar100 --runs cifar --numbers both --format {{{FORMATS}}}
leaderboard --dataset {{cifar100|fgvc|inat19|tieredimagenet-h}} --numbers paper --format {{{FORMATS}}}
leaderboard --dataset tiny-imagenet-frozen --runs published/tiny-imagenet-frozen --format {{{FORMATS}}}
leaderboard --dataset shapes --format latex --output out/board.tex
leaderboard --dataset {{nope|shapes --numbers paper|shapes --runs nowhere|shapes --format nope}}
leaderboard --dataset cifar100 --numbers paper --metrics +ece
compare ce --dataset shapes --format {{{FORMATS}}}
compare ce:type-I haframe:type-II crm --dataset shapes --metrics {{+ece,+hf_macro|top1}} --format {{{FORMATS}}}
compare ce haframe --dataset shapes --protocol authors --format {{markdown|json}}
compare {{ce|nope --dataset shapes}}
power ce haframe --dataset shapes --format {{markdown|csv|json}}
power ce crm --dataset shapes --metric top1 --unpaired --format {{markdown|csv|json}}
power ce haframe --dataset shapes --difference 0.1 --level 0.01 --power 0.9 --format {{markdown|csv|json}}
power ce haframe --dataset {{cifar100|inat19}} --numbers paper --format {{markdown|csv|json}}
power --difference 0.05 --deviation {{0.03|0.2 --unpaired}} --format {{markdown|csv|json}}
power {{ce|ce nope --dataset shapes|ce crm --dataset shapes --format html}}
ablate --dataset {{all|cifar100}} --numbers paper --format {{{FORMATS}}}
methods list  # words
methods check ce  # text
methods new mine  # text
data list  # words
data list {{shapes|fgvc|nope}}  # words
data verify {{shapes|cifar100}}  # text
data prepare shapes  # text
data new birds --images birds/images --tree birds/taxonomy.csv  # text
env  # exit
run --methods all {TRAINING} --seeds 3 --dry-run  # exit
run --methods ce,haframe {TRAINING} --seeds 5 --dry-run{{| --protocol authors}}  # exit
run --methods ce,haframe {TRAINING} --seeds 5 --dry-run --json
run --methods nope --dataset shapes --dry-run
reproduce {{runs ce:type-I|runs haframe --protocol authors|runs haframe|pub/shapes ce:type-I}}  # text
reproduce {{runs ce:type-I|runs crm|pub/shapes haframe|published/tiny-imagenet-frozen haframe}} --json
reproduce runs nope
overview published {{|--metric hierdist@1 }}--format csv
runs --dataset shapes  # words
verify {{runs|pub/shapes|published/tiny-imagenet-frozen|cifar|nowhere}}  # text
verify runs pub/shapes cifar published/tiny-imagenet-frozen --json
verify pub/shapes --all-metrics --json
score scored/resnet-0.npz --dataset shapes --resamples 100 --runs scored-runs --name {{{FORMATS}}} --format %
score scored/resnet-0.npz scored/resnet-1.npz --tree shapes --format {{{FORMATS}}}
score scored/resnet-1.npz --tree shapes --resamples 100 --metrics top1,ece,hf_macro --format {{{FORMATS}}}
score scored/resnet-0.npz --dataset shapes --name again --resamples 0 --metrics +ece --json
score {{scored/nothing.npz|buggy.py}} --dataset shapes
plot {{{KINDS}}} --dataset shapes --output out/%.svg  # exit
plot tradeoff --dataset {{cifar100|inat19}} --numbers paper --output out/paper-%.svg  # exit
plot similarity --dataset all --output out/similarity-all.svg  # exit
plot confusion --dataset shapes --method haframe --seed 1 --output out/confusion-1.svg  # exit
plot frame  # exit
plot nope --dataset shapes
mistakes --dataset shapes ce:type-I:0 haframe:type-II:0 --output out/mistakes.html  # text
mistakes --dataset shapes ce:type-I:0 nope
site build pub --output site-pub  # exit
publish --dataset shapes {{|--runs whole }}--output fresh  # text
publish --dataset shapes --runs whole --metrics +ece --output fresh-ece  # text
publish --dataset cifar100 --runs cifar --output fresh-cifar  # text
leaderboard --dataset shapes --runs whole --protocol authors --publish fresh-authors  # text
score scored/resnet-1.npz --dataset shapes --runs whole --name one --json
publish --dataset shapes --runs whole --output pub --metrics +ece --update  # text
site build published --output site-published  # exit
run --methods ce,haframe --types type-II {TRAINING} --seeds 2  # markdown
{ALL}
{ALL} --json
{ALL} --metrics +ece
{ABLATE} --format {{{FORMATS}}}
{TUNE}  # text
{COLLAPSE}  # text
leaderboard --dataset shapes --format json
python interface.py  # csv
"""
INTERFACE = """
import hierbench
board = hierbench.board("shapes", runs="runs")
print(board.frame().to_csv())
"""


def lines_of(text):
    """Return [(arguments, kind)] of lines, each with one alternative of every {a|b}."""
    found = []
    for line in filter(None, text.splitlines()):
        line, _, kind = line.partition("  # ")
        fixed, choices = re.split(r"\{.*?\}", line), [choice.split("|") for choice in re.findall(r"\{(.*?)\}", line)]
        for chosen in itertools.product(*choices):
            words = "".join(itertools.chain(*itertools.zip_longest(fixed, chosen, fillvalue="")))
            arguments = shlex.split(words.replace("%", chosen[0]) if chosen else words)
            found.append((arguments, kind or _kind(arguments)))
    return found


def _kind(arguments):
    if "--json" in arguments:
        return "json"
    kind = arguments[arguments.index("--format") + 1] if "--format" in arguments else ""
    return kind if kind in FORMATS.split("|") else "markdown"
