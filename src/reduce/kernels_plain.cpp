// The kernels for whatever the build's baseline is: vectors of 16 bytes.
#include "reduce/make_kernels.hpp"

namespace tutti::reduce {

const KernelTable* plain_kernels() {
  static constexpr KernelTable kTable = make_kernels();
  return &kTable;
}

}  // namespace tutti::reduce
