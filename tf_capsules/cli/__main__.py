"""`python -m tf_capsules.cli`."""

import sys

from tf_capsules.cli import main

if __name__ == "__main__":
    sys.exit(main())
