"""Data analysis: a file goes in, a table and a chart come out, as data and as a picture."""

from __future__ import annotations

from pathlib import Path

from atoll import Sandbox
from atoll.client import pictures

SALES = "month,north,south\n2024-01,10,7\n2024-02,12,9\n2024-03,9,14\n"

with Sandbox.create("code", timeout_s=300) as sb:
    sb.files.write("sales.csv", SALES)
    sb.code.run("import pandas as pd\nsales = pd.read_csv('sales.csv')", check=True)

    table = sb.code.run("sales.describe().loc[['mean', 'max']]", check=True).results[0]
    assert table.data is not None
    print("means:", {name: values[0] for name, values in table.data["columns"].items()})

    drawn = sb.code.run(
        "import matplotlib.pyplot as plt\n"
        "sales.plot.bar(x='month', y=['north', 'south'])\n"
        "plt.title('Sales'); plt.ylabel('revenue (k€)'); plt.show()",
        check=True,
    )
    for result in drawn.results:
        assert result.chart is not None
        print(result.chart["type"], "chart:", result.chart["title"], "in", result.chart["y_unit"])
        for bar in result.chart["elements"]:
            print(f"  {bar['group']:6} {bar['label']} {bar['value']:g}")
        for kind, data in pictures(result):
            path = Path(f"/tmp/atoll-sales.{kind}")
            path.write_bytes(data)
            print("saved", path)
