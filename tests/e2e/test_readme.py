"""What README.md tells a newcomer to paste must work as it stands, but for the port."""

import re
import subprocess
import sys

from harness import ROOT, Skip, needs_confluent


def test_python_transaction_of_the_readme(env):
    needs_confluent()
    readme = ROOT / "README.md"
    text = readme.read_text() if readme.exists() else ""
    blocks = [b for b in re.findall(r"```python\n(.*?)```", text, re.S) if "begin_transaction" in b]
    if not blocks:
        raise Skip("README.md has no Python transaction yet")
    for block in blocks:
        program = re.sub(r"(127\.0\.0\.1|localhost):9092", env.address, block)
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stderr[-800:]
