#include "cuda/images.hpp"

// Each image is a file in the build tree, which the assembler reads. In a build with sanitizers there are
// none: its tests run on an emulated driver that brings its own kernels (tests/support/fake_cuda).
#if defined(TUTTI_KERNEL_IMAGES)
#define TUTTI_IMAGE(name)          \
  asm(".pushsection .rodata\n"     \
      ".balign 64\n"               \
      ".hidden tutti_image_" #name \
      "\n"                         \
      ".globl tutti_image_" #name  \
      "\n"                         \
      "tutti_image_" #name         \
      ":\n"                        \
      ".incbin \"" #name           \
      ".fatbin\"\n"                \
      ".balign 64\n"               \
      ".popsection\n");            \
  extern "C" const char tutti_image_##name[];
#else
#define TUTTI_IMAGE(name) static const char tutti_image_##name[1] = {};
#endif

TUTTI_IMAGE(copies)
TUTTI_IMAGE(floats)
TUTTI_IMAGE(integers)
TUTTI_IMAGE(naturals)
TUTTI_IMAGE(update)

namespace tutti::cuda {

std::span<const void* const> kernel_images() {
  static constexpr const void* kImages[] = {tutti_image_copies, tutti_image_floats,
                                            tutti_image_integers, tutti_image_naturals,
                                            tutti_image_update};
  return kImages;
}

}  // namespace tutti::cuda
