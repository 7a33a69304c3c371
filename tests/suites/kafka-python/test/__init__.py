"""The package `test` of kafka-python's source distribution, which has no __init__.py and so would lose to Python's own
`test`. This one is found first, and finds the distribution's modules; `service`, which the distribution lacks, is
beside it.
"""

import os

__path__.append(os.environ["TIDEMARK_TEST_KAFKA_PYTHON"])
