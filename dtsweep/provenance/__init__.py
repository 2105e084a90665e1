"""Provenance of a number: versions, source of the workload, its data, revision.

Any process; the standard library alone. Nothing of the user's is imported. In reading order:

    versions        of what measures, and of installed packages
    revision        the commit of the sweep file's folder
    modules         where a module's source lies, found without importing it
    syntax          what a module's source says, by its statements, and what it imports
    typed           the same for a class that was typed into a notebook, and what it uses of that
    data            contents of files, by size and both ends
    sources         all that a workload's numbers depend on, and what has changed of it
"""
