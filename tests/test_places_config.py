"""``[places.NAME]`` of workbench.toml: what is wrong is named, with the nearest right name."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from workbench.errors import UsageError
from workbench.study.config import Config, read_config
from workbench.study.places import (
    LocalPlace,
    SchedulerPlace,
    SshPlace,
    find_place,
)


def read(folder: Path, text: str) -> Config:
    path = folder / "workbench.toml"
    path.write_text(text)
    return read_config(path)


def test_every_kind_is_read(tmp_path: Path) -> None:
    places = read(
        tmp_path,
        """
        [places.two]
        kind = "local"
        workers = 2
        [places.lab]
        kind = "ssh"
        hosts = ["gpu1", "me@10.0.0.7", "fe80::1"]
        user = "me"
        port = 2222
        identity = "keys/id"
        inherit = true
        [places.there]
        kind = "scheduler"
        address = "tls://10.0.0.5:8786"
        ca = "ca.pem"
        cert = "/etc/me.pem"
        key = "me.key"
        """,
    ).places
    assert places["two"] == LocalPlace(name="two", workers=2)
    lab = places["lab"]
    assert isinstance(lab, SshPlace)
    assert (lab.hosts[0], lab.port, lab.inherit) == ("gpu1", 2222, True)
    assert lab.identity == str(tmp_path / "keys" / "id")  # as the workspace's, wherever one stands
    there = places["there"]
    assert isinstance(there, SchedulerPlace)
    assert (there.ca, there.cert) == (str(tmp_path / "ca.pem"), "/etc/me.pem")


def test_the_places_of_the_documentation_are_ones(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "places.md").read_text()
    text = page.partition("```toml\n")[2].partition("```")[0]
    places = read(tmp_path, text).places
    assert list(places) == ["lab", "running"]
    for each in places.values():  # every setting is in a table of the page
        for key in (f.name for f in fields(each) if f.name != "name"):
            assert f"`{key}`" in page or f"\n{key} = " in page, key


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("[places]\nlab = 3", "'places.lab' must be a table", "[places.lab]"),
        ("places = 3", "'places' must be a table", "[places]"),
        ("[places.lab]", "'places.lab' has no 'kind'", "ssh"),
        ("[places.lab]\nkind = 'shs'", "'shs'", "'ssh'"),
        ("[places.lab]\nkind = 3", "'places.lab.kind' is 3", "ssh"),
        ("[places.lab]\nkind = 'ssh'", "has no 'hosts'", "ssh needs it"),
        (
            "[places.lab]\nkind = 'ssh'\nhost = ['a']",
            "unknown key 'places.lab.host'",
            "'hosts'",
        ),
        ("[places.lab]\nkind = 'ssh'\nhosts = 'a'", "list of strings", ""),
        ("[places.lab]\nkind = 'ssh'\nhosts = ['-oProxyCommand=x']", "no host", "ssh takes"),
        ("[places.lab]\nkind = 'ssh'\nhosts = ['a;b']", "no host", "ssh takes"),
        ("[places.lab]\nkind = 'ssh'\nhosts = ['a', 'a']", "twice", ""),
        ("[places.lab]\nkind = 'ssh'\nhosts = ['a']\nport = 70000", "at most 65535", ""),
        ("[places.lab]\nkind = 'ssh'\nhosts = ['a']\nname = 'b'", "'places.lab.name'", ""),
        ("[places.lab]\nkind = 'scheduler'\naddress = 'here'", "'here'", "tls://"),
        (
            "[places.lab]\nkind = 'scheduler'\naddress = 'tcp://10.0.0.5:8786'",
            "without TLS",
            "--protocol tls",
        ),
        (
            "[places.lab]\nkind = 'scheduler'\naddress = 'tls://10.0.0.5:8786'\nca = 'a'",
            "has no 'cert'",
            "all three",
        ),
        ('[places."../x"]\nkind = "local"', "no name of a place", "letters"),
    ],
)
def test_a_wrong_place_is_named(text: str, words: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as failed:
        read(tmp_path, text)
    assert "workbench.toml" in failed.value.message
    assert words in failed.value.message
    assert hint in failed.value.hint


def test_a_scheduler_on_this_machine_needs_no_tls(tmp_path: Path) -> None:
    text = "[places.here]\nkind = 'scheduler'\naddress = 'tcp://127.0.0.1:8786'"
    assert read(tmp_path, text).places["here"] == SchedulerPlace(
        name="here", address="tcp://127.0.0.1:8786"
    )


def test_local_is_there_without_being_named(tmp_path: Path) -> None:
    places = read(tmp_path, "[places.lab]\nkind = 'ssh'\nhosts = ['a']").places
    assert find_place(places, "local") == LocalPlace()
    with pytest.raises(UsageError, match="unknown place 'lap'") as failed:
        find_place(places, "lap")
    assert failed.value.hint == "did you mean 'lab'?"
