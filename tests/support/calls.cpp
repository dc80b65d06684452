// Trial::run and Trial::start: every method of tutti/collectives.hpp is called here, by its name.
#include "support/trial.hpp"

namespace tutti::test {
namespace {

// What a rank without that side passes says of it no more than its type, and its length where that
// makes a difference.
Buffer first(const std::vector<Buffer>& side, Dtype dtype, std::size_t count = 0) {
  return side.empty() ? Buffer{nullptr, count, dtype} : side.front();
}

}  // namespace

Status Trial::run() {
  const CallOptions options = this->options();
  const ConstBuffer in = first(inputs_, what_.dtype);
  const Buffer out = first(outputs_, result_dtype(what_), what_.widens ? what_.count : 0);
  const bool one_buffer = what_.in_place;
  const bool list = what_.shape == Shape::list || what_.shape == Shape::uneven_list;
  const bool uneven = what_.shape == Shape::uneven;
  const Reduction& how = what_.reduction;
  const int root = what_.root;
  const std::span<const ConstBuffer> ins = const_inputs_;
  const std::span<const Buffer> outs = outputs_;
  switch (what_.collective) {
    case Collective::barrier: return group_.barrier(options);
    case Collective::broadcast: return group_.broadcast(out, root, options);
    case Collective::reduce: return group_.reduce(in, out, how, root, options);
    case Collective::all_reduce:
      if (one_buffer) return group_.all_reduce(out, how, options);
      return group_.all_reduce(in, out, how, options);
    case Collective::scan: return group_.scan(in, out, how, options);
    case Collective::exclusive_scan: return group_.exclusive_scan(in, out, how, options);
    case Collective::gather:
      if (list) return group_.gather(in, outs, root, options);
      if (uneven) return group_.gather_v(in, out, output_counts_, root, options);
      return group_.gather(in, out, root, options);
    case Collective::all_gather:
      if (list) return group_.all_gather(in, outs, options);
      if (uneven) return group_.all_gather_v(in, out, output_counts_, options);
      return group_.all_gather(in, out, options);
    case Collective::scatter:
      if (list) return group_.scatter(ins, out, root, options);
      if (uneven) return group_.scatter_v(in, input_counts_, out, root, options);
      return group_.scatter(in, out, root, options);
    case Collective::reduce_scatter:
      if (list) return group_.reduce_scatter(ins, out, how, options);
      if (uneven) return group_.reduce_scatter_v(in, input_counts_, out, how, options);
      return group_.reduce_scatter(in, out, how, options);
    case Collective::all_to_all:
      if (list) return group_.all_to_all(ins, outs, options);
      if (uneven) return group_.all_to_all_v(in, input_counts_, out, output_counts_, options);
      return group_.all_to_all(in, out, options);
  }
  return Status(Code::internal, "no such collective");
}

Work Trial::start() {
  const CallOptions options = this->options();
  const ConstBuffer in = first(inputs_, what_.dtype);
  const Buffer out = first(outputs_, result_dtype(what_), what_.widens ? what_.count : 0);
  const bool one_buffer = what_.in_place;
  const bool list = what_.shape == Shape::list || what_.shape == Shape::uneven_list;
  const bool uneven = what_.shape == Shape::uneven;
  const Reduction& how = what_.reduction;
  const int root = what_.root;
  const std::span<const ConstBuffer> ins = const_inputs_;
  const std::span<const Buffer> outs = outputs_;
  switch (what_.collective) {
    case Collective::barrier: return group_.barrier_async(options);
    case Collective::broadcast: return group_.broadcast_async(out, root, options);
    case Collective::reduce: return group_.reduce_async(in, out, how, root, options);
    case Collective::all_reduce:
      if (one_buffer) return group_.all_reduce_async(out, how, options);
      return group_.all_reduce_async(in, out, how, options);
    case Collective::scan: return group_.scan_async(in, out, how, options);
    case Collective::exclusive_scan: return group_.exclusive_scan_async(in, out, how, options);
    case Collective::gather:
      if (list) return group_.gather_async(in, outs, root, options);
      if (uneven) return group_.gather_v_async(in, out, output_counts_, root, options);
      return group_.gather_async(in, out, root, options);
    case Collective::all_gather:
      if (list) return group_.all_gather_async(in, outs, options);
      if (uneven) return group_.all_gather_v_async(in, out, output_counts_, options);
      return group_.all_gather_async(in, out, options);
    case Collective::scatter:
      if (list) return group_.scatter_async(ins, out, root, options);
      if (uneven) return group_.scatter_v_async(in, input_counts_, out, root, options);
      return group_.scatter_async(in, out, root, options);
    case Collective::reduce_scatter:
      if (list) return group_.reduce_scatter_async(ins, out, how, options);
      if (uneven) return group_.reduce_scatter_v_async(in, input_counts_, out, how, options);
      return group_.reduce_scatter_async(in, out, how, options);
    case Collective::all_to_all:
      if (list) return group_.all_to_all_async(ins, outs, options);
      if (uneven) return group_.all_to_all_v_async(in, input_counts_, out, output_counts_, options);
      return group_.all_to_all_async(in, out, options);
  }
  return Work::finished(Status(Code::internal, "no such collective"));
}

}  // namespace tutti::test
