"""Commands of ``atomizer`` that belong to the laboratory, registered by the entry points ``atomizer_io.commands``."""
