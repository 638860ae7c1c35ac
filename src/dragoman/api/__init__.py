"""The Python API that `import dragoman` offers."""
