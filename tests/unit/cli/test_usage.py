"""`atoll usage`: a table, JSON and CSV, by group; by tenant for the operator."""

from __future__ import annotations

import csv
import io
import json

from .conftest import Run


def test_the_same_numbers_as_table_json_and_csv(served: Run) -> None:
    served("tenant", "create", "users")
    key = served("key", "create", "first", "--tenant", "users").stdout.strip()
    made = served("sandbox", "create", "-m", "run==1", ATOLL_API_KEY=key).stdout.strip()
    served("sandbox", "kill", made, ATOLL_API_KEY=key)
    table = served("usage", "--by", "template", ATOLL_API_KEY=key).stdout.splitlines()
    assert table[0].split()[:2] == ["TEMPLATE", "SANDBOXES"]
    assert [line.split()[:2] for line in table[1:]] == [["code", "1"]]
    (row,) = json.loads(served("usage", "--by", "label:run", "--json", ATOLL_API_KEY=key).stdout)["items"]
    assert (row["group"], row["sandboxes"]) == ("=1", 1)
    rows = list(csv.DictReader(io.StringIO(served("usage", "--by", "label:run", "--csv", ATOLL_API_KEY=key).stdout)))
    assert [(one["group"], one["sandboxes"]) for one in rows] == [("'=1", "1")]  # no formula for a spreadsheet
    everybody = json.loads(served("usage", "--by", "tenant", "--json").stdout)["items"]
    assert [one["sandboxes"] for one in everybody if one["group"] == "users"] == [1]
    assert "operator_only" in served("usage", "--by", "tenant", ATOLL_API_KEY=key).stderr
    assert json.loads(served("usage", "--since", "2100-01-01", "--json", ATOLL_API_KEY=key).stdout)["items"] == []
    assert served("usage", "--since", "never").returncode == 2
