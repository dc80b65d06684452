#include "parallel_linear.hpp"

#include "rank_collectives.hpp"
#include "sequence_pass.hpp"
#include "tensor_calls.hpp"
#include "tutti/libtorch/half_on_cpu.hpp"

namespace tutti::libtorch {

namespace {

torch::Tensor in_rows(const torch::Tensor& x) { return x.contiguous().view({-1, x.size(-1)}); }

// a · b
torch::Tensor product(const torch::Tensor& a, const torch::Tensor& b) {
  return in_f32_on_cpu(a, [&](const torch::Tensor& left) { return left.mm(widened_on_cpu(b)); });
}
void product_into(torch::Tensor out, const torch::Tensor& a, const torch::Tensor& b) {
  if (is_half_on_cpu(a))
    out.copy_(product(a, b));
  else
    torch::mm_out(out, a, b);
}

torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight,
                     const torch::Tensor& bias) {
  return in_f32_on_cpu(x, [&](const torch::Tensor& rows) {
    return torch::linear(rows, widened_on_cpu(weight), widened_on_cpu(bias));
  });
}

void multiply_into(torch::Tensor out, const torch::Tensor& rows, const torch::Tensor& weight,
                   const torch::Tensor& bias) {
  if (is_half_on_cpu(rows))
    out.copy_(linear(rows, weight, bias));
  else if (bias.defined())
    torch::addmm_out(out, bias, rows, weight.t());
  else
    torch::mm_out(out, rows, weight.t());
}

// ---- forward

struct ForwardResult {
  torch::Tensor y;
  torch::Tensor gathered;  // rows of x, rank by rank, where they are kept for backward
};

ForwardResult forward_gathered(const LinearWays& ways, const torch::Tensor& x,
                               const torch::Tensor& weight, const torch::Tensor& bias) {
  TensorParallel& ranks = *ways.ranks;
  const auto& options = ranks.options();
  auto shape = whole_shape_of(ranks, x, options.sequence_dim, options.sequence_length);
  SequencePass pass(ranks, std::move(shape), weight);
  const std::int64_t in = x.size(-1), all = pass.blocks().all_rows();
  ScratchRoom room(ranks, x, pass.most_own() * in + all * in);
  const auto part = room.take(pass.own(), in);
  part.copy_(in_rows(x));
  const auto whole =
      options.keep_gathered ? torch::empty({all, in}, x.options()) : room.take(all, in);
  auto y = torch::empty({all, weight.size(0)}, x.options());
  pass.gather(part, whole, [&](std::int64_t first, std::int64_t count) {
    multiply_into(y.narrow(0, first, count), whole.narrow(0, first, count), weight, bias);
  });
  return {pass.blocks().natural(y), options.keep_gathered ? whole : torch::Tensor()};
}

torch::Tensor forward_scattered(const LinearWays& ways, const torch::Tensor& x,
                                const torch::Tensor& weight) {
  SequencePass pass(*ways.ranks, x.sizes().vec(), weight);
  const std::int64_t out = weight.size(0), all = pass.blocks().all_rows();
  ScratchRoom room(*ways.ranks, x, all * out + pass.most_own() * out);
  const auto rows = pass.blocks().by_rank(x);
  const auto whole = room.take(all, out), part = room.take(pass.own(), out);
  pass.scatter(
      whole, part,
      [&](std::int64_t first, std::int64_t count) {
        multiply_into(whole.narrow(0, first, count), rows.narrow(0, first, count), weight, {});
      },
      [] {});
  return pass.part(part).clone();
}

// ---- backward

// What a node has saved, and what it is asked for.
struct BackwardCall {
  const LinearWays& ways;
  torch::Tensor dy, x, weight;
  torch::Tensor gathered;  // rows of x, where they were kept
  bool wants_x = true, wants_weight = true;
};

struct Gradients {
  torch::Tensor x, weight;
};

// dW = dyᵀ · x of rows, now or later. What is queued keeps its tensors, so they must be nobody else's.
torch::Tensor weight_product(const BackwardCall& call, const torch::Tensor& dy_rows,
                             const torch::Tensor& x_rows) {
  if (call.ways.queue == nullptr) return product(dy_rows.t(), x_rows);
  // By the weight's own accumulator, as if it had just come: hooks there see it.
  call.ways.queue->push([weight = call.weight, dy_rows, x_rows] {
    torch::autograd::backward({weight}, {product(dy_rows.t(), x_rows)});
  });
  return {};
}

Gradients backward_as_is(const BackwardCall& call) {
  Gradients gradients;
  const auto dy = in_rows(call.dy);
  if (call.wants_x) gradients.x = product(dy, call.weight).view(call.x.sizes());
  if (call.wants_weight) gradients.weight = weight_product(call, dy, in_rows(call.x));
  return gradients;
}

Gradients backward_copied(const BackwardCall& call) {
  TensorParallel& ranks = *call.ways.ranks;
  if (!call.wants_x || !ranks.options().overlap) {
    Gradients gradients = backward_as_is(call);
    if (call.wants_x) gradients.x = all_reduced(ranks, gradients.x);
    return gradients;
  }
  Gradients gradients;
  const auto dy = in_rows(call.dy);
  gradients.x = product(dy, call.weight);
  const CallOptions options = call_on(gradients.x, "tensor parallel");
  exchange::ExchangeMeter meter(lend(gradients.x).device, options.stream);
  const auto sum =
      meter.follow(ranks.group().all_reduce_async(lend(gradients.x), ReduceOp::sum, options));
  const Status computed = status_of("a weight's product failed", [&] {
    if (call.wants_weight) gradients.weight = weight_product(call, dy, in_rows(call.x));
  });
  const Status summed = meter.wait(sum);  // in any case: its buffer is lent
  throw_failure(computed);
  throw_failure(summed);
  ranks.add_times(meter.times());
  gradients.x = gradients.x.view(call.x.sizes());
  return gradients;
}

Gradients backward_gathered(const BackwardCall& call) {
  TensorParallel& ranks = *call.ways.ranks;
  const auto& options = ranks.options();
  auto shape = whole_shape_of(ranks, call.x, options.sequence_dim, options.sequence_length);
  SequencePass pass(ranks, std::move(shape), call.weight);
  const std::int64_t in = call.x.size(-1), all = pass.blocks().all_rows();
  const bool gathers = call.wants_weight && !call.gathered.defined();
  ScratchRoom room(ranks, call.x, 2 * (pass.most_own() * in + all * in));
  const auto dy = pass.blocks().by_rank(call.dy);
  const auto x_part = room.take(pass.own(), in);
  x_part.copy_(in_rows(call.x));
  torch::Tensor x_rows = call.gathered;
  if (gathers)
    x_rows =
        call.ways.queue != nullptr ? torch::empty({all, in}, dy.options()) : room.take(all, in);
  GatherBeside gathering(ranks, pass.blocks(), gathers ? x_part : torch::Tensor(), x_rows);
  if (!options.overlap) gathering.wait();
  Gradients gradients;
  const auto product = [&] {
    gathering.wait();
    if (call.wants_weight) gradients.weight = weight_product(call, dy, x_rows);
  };
  if (!call.wants_x) {
    product();
    return gradients;
  }
  const auto dx = room.take(all, in), dx_part = room.take(pass.own(), in);
  pass.scatter(
      dx, dx_part,
      [&](std::int64_t first, std::int64_t count) {
        product_into(dx.narrow(0, first, count), dy.narrow(0, first, count), call.weight);
      },
      product);
  gradients.x = pass.part(dx_part).clone();
  return gradients;
}

Gradients backward_scattered(const BackwardCall& call) {
  SequencePass pass(*call.ways.ranks, call.x.sizes().vec(), call.weight);
  const std::int64_t out = call.weight.size(0), all = pass.blocks().all_rows();
  ScratchRoom room(*call.ways.ranks, call.x, pass.most_own() * out + all * out);
  const auto part = room.take(pass.own(), out);
  part.copy_(in_rows(call.dy));
  const auto dy =
      call.ways.queue != nullptr ? torch::empty({all, out}, part.options()) : room.take(all, out);
  auto dx = torch::empty({all, call.weight.size(1)}, part.options());
  pass.gather(part, dy, [&](std::int64_t first, std::int64_t count) {
    if (!call.wants_x) return;
    product_into(dx.narrow(0, first, count), dy.narrow(0, first, count), call.weight);
  });
  Gradients gradients;
  if (call.wants_x) gradients.x = pass.blocks().natural(dx);
  if (call.wants_weight) gradients.weight = weight_product(call, dy, pass.blocks().by_rank(call.x));
  return gradients;
}

Gradients backward_by(const BackwardCall& call) {
  if (call.ways.output == LinearOutput::scattered) return backward_scattered(call);
  switch (call.ways.input) {
    case LinearInput::as_is: return backward_as_is(call);
    case LinearInput::copied: return backward_copied(call);
    case LinearInput::gathered: return backward_gathered(call);
  }
  return {};
}

struct Linear : torch::autograd::Function<Linear> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight,
                               const c10::optional<torch::Tensor>& given_bias,
                               const LinearWays& ways) {
    const torch::Tensor bias = given_bias.value_or(torch::Tensor());
    ForwardResult result;
    if (ways.input == LinearInput::gathered)
      result = forward_gathered(ways, x, weight, bias);
    else if (ways.output == LinearOutput::scattered)
      result.y = forward_scattered(ways, x, weight);
    else
      result.y = linear(x, weight, bias);
    if (ways.output == LinearOutput::reduced) result.y = all_reduced(*ways.ranks, result.y);
    context->saved_data["ways"] = keep(ways);
    context->saved_data["bias"] = bias.defined();
    context->save_for_backward({x, weight, result.gathered});
    return result.y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto dy = gradients[0].contiguous();
    const Gradients found =
        backward_by({kept<LinearWays>(*context, "ways"), dy, saved[0], saved[1], saved[2],
                     context->needs_input_grad(0), context->needs_input_grad(1)});
    torch::Tensor bias;
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2))
      bias = in_rows(dy).sum(0);
    return {found.x, found.weight, bias, torch::Tensor()};
  }
};

}  // namespace

torch::Tensor linear_by(const LinearWays& ways, const torch::Tensor& x, const torch::Tensor& weight,
                        const torch::Tensor& bias) {
  // An undefined tensor cannot be an argument, an absent one can.
  const auto given = bias.defined() ? c10::optional<torch::Tensor>(bias) : c10::nullopt;
  return Linear::apply(x, weight, given, ways);
}

}  // namespace tutti::libtorch
