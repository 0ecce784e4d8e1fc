"""The cost of a training before it is paid: parameters, operations, memory, time, energy and money."""
