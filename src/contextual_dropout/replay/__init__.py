"""Running a pass again without leaving a trace: recordings, generators, buffers."""
