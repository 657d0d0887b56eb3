"""Sources of methods that were kept or published with runs."""

from types import SimpleNamespace

from hierbench.api.code import digest_of_code
from hierbench.runs.method_files import changed_sources, source_name


def test_a_published_source_is_compared_with_its_digest(tmp_path):
    """Comments are no code; a changed constant is."""
    source = b"LIMIT = 1\n"
    digest = digest_of_code(source)
    run = SimpleNamespace(spec=object(), job=SimpleNamespace(method=SimpleNamespace(name="mine")), method_digest=digest)
    file = tmp_path / source_name(run)
    for content, changed in ((source, []), (b"LIMIT = 1  # as before\n", []), (b"LIMIT = 2\n", [file.name])):
        file.write_bytes(content)
        assert [line.split()[0].partition("/")[2] for line in changed_sources([run], [tmp_path])] == changed
