"""The doctor of trees: what looks like a slip, and what is mended."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierbench.hierarchy.readers import read_tree
from hierbench.hierarchy.tree_findings import find_slips, mend, near_spellings
from hierbench.hierarchy.tree_options import TreeOptions

ROWS = """family,genus,species
Tytonidae,Tyto,Tyto alba
Tytonidae,Tyto,Tyto alva
Strigidae,Strix,Strix aluco
Strigidae,strix,Strix nebulosa
Strigidae,Unknown,Bubo bubo
Corvidae,Tyto,Corvus corax
NA,Pica,Pica pica
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "birds.csv"
    path.write_text(ROWS)
    return path


def test_every_kind_is_found_with_its_number_and_examples(file):
    findings = {finding.kind: finding for finding in read_tree(file).findings}
    assert {kind: finding.number for kind, finding in findings.items()} == {
        "parents": 1, "placeholders": 1, "case": 1, "spelling": 1, "blanks": 1,
    }  # fmt: skip
    assert findings["parents"].examples == ("'Tyto' below 'Tytonidae' and 'Corvidae'",)
    assert findings["case"].examples == ("'Strix' and 'strix'",)
    assert str(findings["spelling"]).startswith("spelling: 1 pair of names on one level that differ in a letter, as ")
    chain = find_slips({f"c{i}": (f"a{i}", f"b{i}", f"c{i}") for i in range(3)})
    assert [(finding.kind, finding.number) for finding in chain] == [("chains", 2)]


def test_what_is_accepted_is_not_said_and_what_is_mended_is_counted(file):
    accepted = read_tree(file, TreeOptions(accept="parents, case")).findings
    assert [finding.kind for finding in accepted] == ["placeholders", "spelling", "blanks"]
    reading = read_tree(file, TreeOptions(fix="case,placeholders"))
    assert reading.paths["Strix nebulosa"] == ("Strigidae", "Strix", "Strix nebulosa")
    assert reading.paths["Bubo bubo"] == ("Strigidae", "Bubo bubo")
    assert "1 name written as others that differ in case or blanks; placeholders left out above 1 classes" in str(
        reading.about
    )
    with pytest.raises(ValueError, match="two classes differ in case or blanks alone"):
        mend({"a": ("x", "a"), "A": ("x", "A")}, ["case"])
    for options in (TreeOptions(fix="kase"), TreeOptions(accept="kase")):
        with pytest.raises(ValueError, match="did you mean 'case'"):
            read_tree(file, options)


@given(st.text("abcdefg", min_size=6, max_size=9), st.data())
def test_one_edit_is_near_and_the_same_name_is_not(name, data):
    place = data.draw(st.integers(0, len(name) - 2))
    edits = [
        name[:place] + name[place + 1 :] + "h",
        name[:place] + "h" + name[place:],
        name[:place] + "h" + name[place + 1 :],
        name[:place] + name[place + 1] + name[place] + name[place + 2 :],
    ]
    for edited in edits[1:]:
        expected = [] if edited == name else [(name, edited)]
        assert near_spellings([name, edited]) == expected
    assert near_spellings([name, f"{name}1"]) == near_spellings([name, f"{name}xy"]) == []


def test_other_doors_say_how_many_findings_there_are(cli, file):
    done = cli(file.parent, "data", "tree", "birds.csv").ok()
    assert done.out.count("\nparents: ") == 1
    content = json.loads(cli(file.parent, "data", "tree", "birds.csv", "--format", "json").ok().out)
    assert content["levels"][0].keys() == {"name", "nodes"} and content["levels"][-1]["nodes"] <= content["classes"]
    assert {finding["kind"] for finding in content["findings"]} >= {"parents", "placeholders"}
    assert cli(file.parent, "data", "tree", "birds.csv", "--accept", "parents,placeholders").ok().out.count(": 1 ") == 3
