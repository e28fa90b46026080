"""Where spans come from: a process, a wire, files. Each room inside stands alone and loads what it needs itself."""
