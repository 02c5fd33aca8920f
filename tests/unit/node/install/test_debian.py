"""The package sources of the machine, cut down to its own release."""

from __future__ import annotations

from atoll.node.install import debian

DEB822 = """\
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main

Types: deb-src
URIs: http://mirror.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://vendor.example/apt
Suites: bookworm
Components: stable

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
"""

ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main non-free
deb http://mirror.example/debian bookworm-updates main # note
deb-src http://mirror.example/debian bookworm main
deb http://db.example/apt bookworm-pgdg main
deb http://vendor.example/apt bookworm stable
deb http://old.example/debian bullseye main
nonsense
"""


def test_stanzas_of_the_release_are_kept_as_they_are() -> None:
    kept = debian.sources_deb822(DEB822, "bookworm")
    assert kept.count("URIs:") == 2
    assert "mirror.example/security" in kept
    assert "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg" in kept
    assert debian.sources_deb822(DEB822, "trixie") == ""
    assert debian.sources_deb822("", "bookworm") == ""


def test_lines_of_the_release_are_kept_as_they_are() -> None:
    kept = debian.sources_one_line(ONE_LINE, "bookworm").splitlines()
    assert kept == ONE_LINE.splitlines()[1:3]


def test_how_the_host_reaches_its_sources_is_carried_over() -> None:
    dump = "\n".join(
        [
            'Acquire::http::Proxy "http://proxy.example:3128";',
            'Acquire::https::CaInfo "/etc/ca.crt";',
            'Acquire::http "";',
            'Acquire::Check-Valid-Until "false";',
            'Acquire::Languages:: "none";',
            'APT::Architecture "amd64";',
        ]
    )
    assert debian.carried_over(dump) == [dump.splitlines()[0], dump.splitlines()[1], dump.splitlines()[3]]
