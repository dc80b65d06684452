#include "support/fake_cuda/kernels.hpp"

namespace tutti::cuda {
namespace {

template <KernelBody Body>
constexpr DriverKernel with_phase(std::string_view name) {
  return {name, sizeof(Phase),
          [](const void* parameter) { run_kernel(Body, *static_cast<const Phase*>(parameter)); }};
}

template <class Job, void (*Body)(const Job&, const kernels::Worker&)>
constexpr DriverKernel with_job(std::string_view name) {
  return {name, sizeof(Job), [](const void* parameter) {
            Body(*static_cast<const Job*>(parameter), kernels::Worker{});
          }};
}

void sum_squares(const InspectJob& job, const kernels::Worker& worker) {
  kernels::SharedLimbs shared{};
  kernels::run_sum_squares(job, shared, worker);
}

// Of floats; the others have none.
void run_nothing(const Phase&, kernels::Shared&, const kernels::Worker&) {}
template <DtypeKind Kind, int Bytes, int Exponent, int Mantissa>
constexpr KernelBody shaped_fold_of() {
  if constexpr (Kind == DtypeKind::real || Kind == DtypeKind::finite)
    return kernels::run_shaped_fold_phase<kernels::ElementOf<Kind, Bytes, Exponent, Mantissa>>;
  else
    return run_nothing;
}

// As entry.cuh and update.cu make kernels of them.
constexpr DriverKernel kKernels[] = {
    with_phase<kernels::run_copy_phase>("tutti_copy"),
    with_phase<kernels::run_meet>("tutti_meet"),
    with_job<AdamWJob, kernels::run_update>("tutti_adamw"),
    with_job<SgdJob, kernels::run_update>("tutti_sgd"),
    with_job<ConvertJob, kernels::run_narrow>("tutti_narrow"),
    with_job<ConvertJob, kernels::run_widen>("tutti_widen"),
    with_job<AddJob, kernels::run_add>("tutti_add"),
    with_job<InspectJob, kernels::run_find_not_finite>("tutti_find_not_finite"),
    with_job<InspectJob, sum_squares>("tutti_sum_squares"),
#define TUTTI_DTYPE(name, NAME, word, kind, bytes, exponent, mantissa, ...)                     \
  with_phase<                                                                                   \
      kernels::run_fold_phase<kernels::ElementOf<DtypeKind::kind, bytes, exponent, mantissa>>>( \
      "tutti_fold_" #name),
#include "tutti/dtypes.def"
#undef TUTTI_DTYPE
#define TUTTI_DTYPE(name, NAME, word, kind, bytes, exponent, mantissa, ...) \
  with_phase<shaped_fold_of<DtypeKind::kind, bytes, exponent, mantissa>()>( \
      "tutti_shaped_fold_" #name),
#include "tutti/dtypes.def"
#undef TUTTI_DTYPE
};

// By dtype.
constexpr KernelBody kFolds[] = {
#define TUTTI_DTYPE(name, NAME, word, kind, bytes, exponent, mantissa, ...) \
  kernels::run_fold_phase<kernels::ElementOf<DtypeKind::kind, bytes, exponent, mantissa>>,
#include "tutti/dtypes.def"
#undef TUTTI_DTYPE
};

constexpr KernelBody kShapedFolds[] = {
#define TUTTI_DTYPE(name, NAME, word, kind, bytes, exponent, mantissa, ...) \
  shaped_fold_of<DtypeKind::kind, bytes, exponent, mantissa>(),
#include "tutti/dtypes.def"
#undef TUTTI_DTYPE
};

}  // namespace

const DriverKernel* kernel_named(std::string_view name) {
  for (const DriverKernel& kernel : kKernels)
    if (kernel.name == name) return &kernel;
  return nullptr;
}

KernelBody kernel_for(const Phase& phase, Dtype row) {
  if (phase.fold.bytes == 0 || phase.fold.copies != 0) return kernels::run_copy_phase;
  return (is_shaped(phase.fold) ? kShapedFolds : kFolds)[static_cast<std::size_t>(row)];
}

void run_kernel(KernelBody kernel, const Phase& phase) {
  kernels::Shared shared{};
  kernel(phase, shared, {});
}

}  // namespace tutti::cuda
