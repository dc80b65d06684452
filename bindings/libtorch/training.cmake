# Sources that hold a module's tensors and the training layer together: also tutti_torch's, for Python's modules.
set(TUTTI_LIBTORCH_TRAINING binding.cpp data_parallel.cpp gate_order.cpp module_buffers.cpp nan_region.cpp streams.cpp
  weight_scope.cpp)
