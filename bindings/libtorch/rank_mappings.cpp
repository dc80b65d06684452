// The conjugate functions of tutti/libtorch/tensor_parallel.hpp.
#include "rank_collectives.hpp"
#include "tensor_calls.hpp"

namespace tutti::libtorch {

namespace {

enum class Way { identity, all_reduce, all_gather, own_part, reduce_scatter };

// Which way values go, and which way gradients come back.
struct Mapping {
  SharedTensorParallel ranks;
  Way forward = Way::identity;
  Way backward = Way::identity;
  std::int64_t dim = 0;
  std::int64_t length = 0;  // of the whole along dim; 0: equal parts

  torch::Tensor go(Way way, const torch::Tensor& x) const {
    switch (way) {
      case Way::identity: return x;
      case Way::all_reduce: return all_reduced(*ranks, x);
      case Way::all_gather: return all_gathered(*ranks, x, dim, length);
      case Way::own_part: return own_part(*ranks, x, dim);
      case Way::reduce_scatter: return reduce_scattered(*ranks, x, dim);
    }
    return x;
  }
};

struct Mapped : torch::autograd::Function<Mapped> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const Mapping& mapping) {
    context->saved_data["mapping"] = keep(mapping);
    // An output must not be the input itself.
    return mapping.forward == Way::identity ? x.view_as(x) : mapping.go(mapping.forward, x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto& mapping = kept<Mapping>(*context, "mapping");
    return {mapping.go(mapping.backward, gradients[0]), torch::Tensor()};
  }
};

torch::Tensor map(const torch::Tensor& x, Mapping mapping) {
  if (mapping.ranks->size() == 1) return x;
  if (mapping.dim < 0) mapping.dim += x.dim();
  return Mapped::apply(x, mapping);
}

}  // namespace

torch::Tensor copy_to_ranks(const SharedTensorParallel& ranks, const torch::Tensor& x) {
  return map(x, {ranks, Way::identity, Way::all_reduce});
}

torch::Tensor reduce_from_ranks(const SharedTensorParallel& ranks, const torch::Tensor& x) {
  return map(x, {ranks, Way::all_reduce, Way::identity});
}

torch::Tensor gather_from_ranks(const SharedTensorParallel& ranks, const torch::Tensor& x,
                                std::int64_t dim, std::int64_t length) {
  return map(x, {ranks, Way::all_gather, Way::own_part, dim, length});
}

torch::Tensor scatter_to_ranks(const SharedTensorParallel& ranks, const torch::Tensor& x,
                               std::int64_t dim) {
  return map(x, {ranks, Way::own_part, Way::all_gather, dim, x.size(dim)});
}

torch::Tensor gather_sequence(const SharedTensorParallel& ranks, const torch::Tensor& x) {
  const auto& options = ranks->options();
  return map(x, {ranks, Way::all_gather, Way::reduce_scatter, options.sequence_dim,
                 options.sequence_length});
}

torch::Tensor reduce_scatter_sequence(const SharedTensorParallel& ranks, const torch::Tensor& x) {
  const std::int64_t dim = ranks->options().sequence_dim;
  return map(x, {ranks, Way::reduce_scatter, Way::all_gather, dim, x.size(dim)});
}

}  // namespace tutti::libtorch
