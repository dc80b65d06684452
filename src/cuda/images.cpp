#include "cuda/images.hpp"

// Each image is a file in the build tree, which the assembler reads; kernel_images.def, made by cmake/cuda.cmake,
// lists them. In a build with sanitizers there are none: its tests run on an emulated driver that brings its
// own kernels (tests/support/fake_cuda).
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
#include "cuda/kernel_images.def"
#undef TUTTI_IMAGE
#endif

namespace tutti::cuda {

std::span<const void* const> kernel_images() {
#if defined(TUTTI_KERNEL_IMAGES)
#define TUTTI_IMAGE(name) tutti_image_##name,
  static constexpr const void* kImages[] = {
#include "cuda/kernel_images.def"
  };
#else
  static constexpr char kNone[1] = {};
  static constexpr const void* kImages[] = {kNone};
#endif
  return kImages;
}

}  // namespace tutti::cuda
