// The named forms of every collective: each describes itself once as a Form, and both the blocking
// and the async method pass the Call made from it on. Nothing here checks an argument: that is
// done in one place, behind run() and start(), so that bindings that fill in a Call get the same
// answers.

#include "tutti/collectives.hpp"

#include <vector>

namespace tutti {
inline namespace v1 {
namespace {

// One side of a call: a single buffer, which it holds, or the caller's list of one per rank.
template <class B>
class Side {
 public:
  Side() = default;  // a side that the collective does not have
  Side(const B& buffer) : buffer_(buffer), held_(true) {}
  Side(std::span<const B> list) : list_(list) {}

  // Valid as long as this Side stays where it is.
  std::span<const B> span() const { return held_ ? std::span<const B>(&buffer_, 1) : list_; }

 private:
  B buffer_;
  std::span<const B> list_;
  bool held_ = false;
};

using Input = Side<ConstBuffer>;
using Output = Side<Buffer>;

// A Call that holds its single buffers itself, so that it can be returned; call() is good until the
// end of the full expression that the Form was made in.
struct Form {
  Collective collective;
  Input input = {};
  Output output = {};
  Counts input_counts = {};
  Counts output_counts = {};
  Reduction reduction = {};
  int root = 0;
  Options options;

  Call call() const {
    return {.collective = collective,
            .input = input.span(),
            .output = output.span(),
            .input_counts = input_counts,
            .output_counts = output_counts,
            .reduction = reduction,
            .root = root,
            .options = options};
  }
  // For the forms whose parts may differ by rank in a way that a rank cannot see for itself.
  Call uneven_call() const {
    Call made = call();
    made.uneven = true;
    return made;
  }
};

Form broadcast_form(const Buffer& buffer, int root, Options options) {
  return {.collective = Collective::broadcast, .output = buffer, .root = root, .options = options};
}

Form reduce_form(const ConstBuffer& input, const Buffer& output, const Reduction& reduction,
                 int root, Options options) {
  return {.collective = Collective::reduce,
          .input = input,
          .output = output,
          .reduction = reduction,
          .root = root,
          .options = options};
}

// all_reduce and the scans: every rank has both sides, alike.
Form fold_form(Collective collective, Input input, Output output, const Reduction& reduction,
               Options options) {
  return {.collective = collective,
          .input = input,
          .output = output,
          .reduction = reduction,
          .options = options};
}

Form gather_form(const ConstBuffer& input, Output output, Counts counts, int root,
                 Options options) {
  return {.collective = Collective::gather,
          .input = input,
          .output = output,
          .output_counts = counts,
          .root = root,
          .options = options};
}

Form all_gather_form(const ConstBuffer& input, Output output, Counts counts, Options options) {
  return {.collective = Collective::all_gather,
          .input = input,
          .output = output,
          .output_counts = counts,
          .options = options};
}

Form scatter_form(Input input, Counts counts, const Buffer& output, int root, Options options) {
  return {.collective = Collective::scatter,
          .input = input,
          .output = output,
          .input_counts = counts,
          .root = root,
          .options = options};
}

Form reduce_scatter_form(Input input, Counts counts, const Buffer& output,
                         const Reduction& reduction, Options options) {
  return {.collective = Collective::reduce_scatter,
          .input = input,
          .output = output,
          .input_counts = counts,
          .reduction = reduction,
          .options = options};
}

Form all_to_all_form(Input input, Counts input_counts, Output output, Counts output_counts,
                     Options options) {
  return {.collective = Collective::all_to_all,
          .input = input,
          .output = output,
          .input_counts = input_counts,
          .output_counts = output_counts,
          .options = options};
}

Form barrier_form(Options options) {
  return {.collective = Collective::barrier, .options = options};
}

std::vector<ConstBuffer> as_inputs(std::span<const Buffer> buffers) {
  return {buffers.begin(), buffers.end()};
}

// A Transfer has one kind of buffer for both directions; what is sent is only read.
Transfer sending(const ConstBuffer& buffer, int peer, std::uint32_t tag) {
  const Buffer lent{const_cast<void*>(buffer.data), buffer.count, buffer.dtype, buffer.device,
                    buffer.ready};
  return {Transfer::Kind::send, lent, peer, tag};
}

}  // namespace

Status Collectives::broadcast(Buffer buffer, int root, Options options) {
  return run(broadcast_form(buffer, root, options).call());
}
Work Collectives::broadcast_async(Buffer buffer, int root, Options options) {
  return start(broadcast_form(buffer, root, options).call());
}

Status Collectives::reduce(ConstBuffer input, Buffer output, Reduction reduction, int root,
                           Options options) {
  return run(reduce_form(input, output, reduction, root, options).call());
}
Work Collectives::reduce_async(ConstBuffer input, Buffer output, Reduction reduction, int root,
                               Options options) {
  return start(reduce_form(input, output, reduction, root, options).call());
}

Status Collectives::all_reduce(ConstBuffer input, Buffer output, Reduction reduction,
                               Options options) {
  return run(fold_form(Collective::all_reduce, input, output, reduction, options).call());
}
Work Collectives::all_reduce_async(ConstBuffer input, Buffer output, Reduction reduction,
                                   Options options) {
  return start(fold_form(Collective::all_reduce, input, output, reduction, options).call());
}
// The call of every training loop: straight to the point.
Status Collectives::all_reduce(Buffer buffer, Reduction reduction, Options options) {
  const ConstBuffer input(buffer);
  return run({.collective = Collective::all_reduce,
              .input = {&input, 1},
              .output = {&buffer, 1},
              .input_counts = {},
              .output_counts = {},
              .reduction = reduction,
              .options = options});
}
Work Collectives::all_reduce_async(Buffer buffer, Reduction reduction, Options options) {
  return all_reduce_async(ConstBuffer(buffer), buffer, reduction, options);
}
Status Collectives::all_reduce(std::span<const Buffer> buffers, Reduction reduction,
                               Options options) {
  const auto inputs = as_inputs(buffers);
  return run(fold_form(Collective::all_reduce, Input(inputs), buffers, reduction, options).call());
}
Work Collectives::all_reduce_async(std::span<const Buffer> buffers, Reduction reduction,
                                   Options options) {
  const auto inputs = as_inputs(buffers);
  return start(
      fold_form(Collective::all_reduce, Input(inputs), buffers, reduction, options).call());
}

Status Collectives::gather(ConstBuffer input, Buffer output, int root, Options options) {
  return run(gather_form(input, output, {}, root, options).call());
}
Work Collectives::gather_async(ConstBuffer input, Buffer output, int root, Options options) {
  return start(gather_form(input, output, {}, root, options).call());
}
Status Collectives::gather_v(ConstBuffer input, Buffer output, Counts counts, int root,
                             Options options) {
  return run(gather_form(input, output, counts, root, options).uneven_call());
}
Work Collectives::gather_v_async(ConstBuffer input, Buffer output, Counts counts, int root,
                                 Options options) {
  return start(gather_form(input, output, counts, root, options).uneven_call());
}
Status Collectives::gather(ConstBuffer input, std::span<const Buffer> outputs, int root,
                           Options options) {
  return run(gather_form(input, outputs, {}, root, options).uneven_call());
}
Work Collectives::gather_async(ConstBuffer input, std::span<const Buffer> outputs, int root,
                               Options options) {
  return start(gather_form(input, outputs, {}, root, options).uneven_call());
}

Status Collectives::all_gather(ConstBuffer input, Buffer output, Options options) {
  return run(all_gather_form(input, output, {}, options).call());
}
Work Collectives::all_gather_async(ConstBuffer input, Buffer output, Options options) {
  return start(all_gather_form(input, output, {}, options).call());
}
Status Collectives::all_gather_v(ConstBuffer input, Buffer output, Counts counts, Options options) {
  return run(all_gather_form(input, output, counts, options).call());
}
Work Collectives::all_gather_v_async(ConstBuffer input, Buffer output, Counts counts,
                                     Options options) {
  return start(all_gather_form(input, output, counts, options).call());
}
Status Collectives::all_gather(ConstBuffer input, std::span<const Buffer> outputs,
                               Options options) {
  return run(all_gather_form(input, outputs, {}, options).call());
}
Work Collectives::all_gather_async(ConstBuffer input, std::span<const Buffer> outputs,
                                   Options options) {
  return start(all_gather_form(input, outputs, {}, options).call());
}

Status Collectives::scatter(ConstBuffer input, Buffer output, int root, Options options) {
  return run(scatter_form(input, {}, output, root, options).call());
}
Work Collectives::scatter_async(ConstBuffer input, Buffer output, int root, Options options) {
  return start(scatter_form(input, {}, output, root, options).call());
}
Status Collectives::scatter_v(ConstBuffer input, Counts counts, Buffer output, int root,
                              Options options) {
  return run(scatter_form(input, counts, output, root, options).uneven_call());
}
Work Collectives::scatter_v_async(ConstBuffer input, Counts counts, Buffer output, int root,
                                  Options options) {
  return start(scatter_form(input, counts, output, root, options).uneven_call());
}
Status Collectives::scatter(std::span<const ConstBuffer> inputs, Buffer output, int root,
                            Options options) {
  return run(scatter_form(inputs, {}, output, root, options).uneven_call());
}
Work Collectives::scatter_async(std::span<const ConstBuffer> inputs, Buffer output, int root,
                                Options options) {
  return start(scatter_form(inputs, {}, output, root, options).uneven_call());
}

Status Collectives::reduce_scatter(ConstBuffer input, Buffer output, Reduction reduction,
                                   Options options) {
  return run(reduce_scatter_form(input, {}, output, reduction, options).call());
}
Work Collectives::reduce_scatter_async(ConstBuffer input, Buffer output, Reduction reduction,
                                       Options options) {
  return start(reduce_scatter_form(input, {}, output, reduction, options).call());
}
Status Collectives::reduce_scatter_v(ConstBuffer input, Counts counts, Buffer output,
                                     Reduction reduction, Options options) {
  return run(reduce_scatter_form(input, counts, output, reduction, options).call());
}
Work Collectives::reduce_scatter_v_async(ConstBuffer input, Counts counts, Buffer output,
                                         Reduction reduction, Options options) {
  return start(reduce_scatter_form(input, counts, output, reduction, options).call());
}
Status Collectives::reduce_scatter(std::span<const ConstBuffer> inputs, Buffer output,
                                   Reduction reduction, Options options) {
  return run(reduce_scatter_form(inputs, {}, output, reduction, options).call());
}
Work Collectives::reduce_scatter_async(std::span<const ConstBuffer> inputs, Buffer output,
                                       Reduction reduction, Options options) {
  return start(reduce_scatter_form(inputs, {}, output, reduction, options).call());
}

Status Collectives::all_to_all(ConstBuffer input, Buffer output, Options options) {
  return run(all_to_all_form(input, {}, output, {}, options).call());
}
Work Collectives::all_to_all_async(ConstBuffer input, Buffer output, Options options) {
  return start(all_to_all_form(input, {}, output, {}, options).call());
}
Status Collectives::all_to_all_v(ConstBuffer input, Counts input_counts, Buffer output,
                                 Counts output_counts, Options options) {
  return run(all_to_all_form(input, input_counts, output, output_counts, options).uneven_call());
}
Work Collectives::all_to_all_v_async(ConstBuffer input, Counts input_counts, Buffer output,
                                     Counts output_counts, Options options) {
  return start(all_to_all_form(input, input_counts, output, output_counts, options).uneven_call());
}
Status Collectives::all_to_all(std::span<const ConstBuffer> inputs, std::span<const Buffer> outputs,
                               Options options) {
  return run(all_to_all_form(inputs, {}, outputs, {}, options).uneven_call());
}
Work Collectives::all_to_all_async(std::span<const ConstBuffer> inputs,
                                   std::span<const Buffer> outputs, Options options) {
  return start(all_to_all_form(inputs, {}, outputs, {}, options).uneven_call());
}

Status Collectives::barrier(Options options) { return run(barrier_form(options).call()); }
Work Collectives::barrier_async(Options options) { return start(barrier_form(options).call()); }

Status Collectives::scan(ConstBuffer input, Buffer output, Reduction reduction, Options options) {
  return run(fold_form(Collective::scan, input, output, reduction, options).call());
}
Work Collectives::scan_async(ConstBuffer input, Buffer output, Reduction reduction,
                             Options options) {
  return start(fold_form(Collective::scan, input, output, reduction, options).call());
}
Status Collectives::exclusive_scan(ConstBuffer input, Buffer output, Reduction reduction,
                                   Options options) {
  return run(fold_form(Collective::exclusive_scan, input, output, reduction, options).call());
}
Work Collectives::exclusive_scan_async(ConstBuffer input, Buffer output, Reduction reduction,
                                       Options options) {
  return start(fold_form(Collective::exclusive_scan, input, output, reduction, options).call());
}

Status Collectives::send(ConstBuffer buffer, int peer, std::uint32_t tag, Options options) {
  const Transfer one = sending(buffer, peer, tag);
  return exchange({&one, 1}, options).status();
}
Work Collectives::isend(ConstBuffer buffer, int peer, std::uint32_t tag, Options options) {
  const Transfer one = sending(buffer, peer, tag);
  return transfer({&one, 1}, options);
}
Result<Received> Collectives::recv(Buffer buffer, int source, std::uint32_t tag, Options options) {
  const Transfer one{Transfer::Kind::recv, buffer, source, tag};
  return exchange({&one, 1}, options);
}
Work Collectives::irecv(Buffer buffer, int source, std::uint32_t tag, Options options) {
  const Transfer one{Transfer::Kind::recv, buffer, source, tag};
  return transfer({&one, 1}, options);
}

}  // namespace v1
}  // namespace tutti
