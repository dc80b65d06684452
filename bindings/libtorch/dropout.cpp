#include "tutti/libtorch/dropout.hpp"

#include <ATen/Parallel.h>

#include <algorithm>

#include "dropout_bits.hpp"
#include "splitmix.hpp"
#include "tensor_calls.hpp"

namespace tutti::libtorch {

namespace {

using exchange::IndexRun;
using Where = std::vector<HeldIndices>;

// Everything about one dropout but the tensor.
struct Dropping {
  double p = 0;
  DropoutKey key;
  Where where;

  std::uint32_t threshold() const { return static_cast<std::uint32_t>(p * 4294967296.0); }
  double scale() const { return 1 / (1 - p); }
  DropoutStream stream() const {
    const std::uint64_t mixed =
        splitmix(splitmix(key.seed, 0), static_cast<std::uint64_t>(key.step));
    return {{static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)},
            {key.micro_batch, key.site}};
  }
};

void check(const torch::Tensor& x, const Dropping& dropping) {
  if (!(dropping.p >= 0 && dropping.p < 1))
    throw_invalid("dropout with probability " + std::to_string(dropping.p) +
                  "; it must be at least 0 and less than 1");
  if (dropping.where.size() != static_cast<std::size_t>(x.dim()))
    throw_invalid("dropout of " + std::to_string(x.dim()) + " dimensions was told where " +
                  std::to_string(dropping.where.size()) + " of them lie");
  for (std::int64_t d = 0; d < x.dim(); ++d) {
    const HeldIndices& held = dropping.where[static_cast<std::size_t>(d)];
    bool inside = true;
    for (const IndexRun& run : held.runs)
      inside = inside && run.first >= 0 && run.end() <= held.whole;
    if (!inside || exchange::count_of(held.runs) != x.size(d))
      throw_invalid("dropout: dimension " + std::to_string(d) + " has " +
                    std::to_string(x.size(d)) + " indices, and was told of " +
                    std::to_string(exchange::count_of(held.runs)) + " out of " +
                    std::to_string(held.whole));
  }
}

// Consecutive elements, in the whole and here.
struct Consecutive {
  std::uint64_t whole = 0;
  std::int64_t here = 0;
  std::int64_t count = 0;
};

constexpr std::int64_t kGrain = 1 << 15;  // elements that one thread takes at a time

// All elements in stretches of at most kGrain. Inner dimensions that are held as a whole lie together.
std::vector<Consecutive> stretches_of(const Where& where) {
  std::size_t outer = where.size();
  std::int64_t inner = 1;  // elements of an index of dimension outer − 1
  while (outer > 0 && where[outer - 1].runs == held_all(where[outer - 1].whole).runs)
    inner *= where[--outer].whole;
  std::vector<Consecutive> list = {{0, 0, inner}};
  for (std::size_t d = outer; d-- > 0;) {
    std::vector<Consecutive> longer;
    const bool innermost = d + 1 == outer;
    std::int64_t stride = 1, here_stride = 1;
    for (std::size_t e = d + 1; e < where.size(); ++e) {
      stride *= where[e].whole;
      here_stride *= exchange::count_of(where[e].runs);
    }
    std::int64_t here = 0;
    for (const IndexRun& run : where[d].runs) {
      if (innermost) {
        longer.push_back({static_cast<std::uint64_t>(run.first * stride), here * here_stride,
                          run.count * inner});
      } else {
        for (std::int64_t i = 0; i < run.count; ++i)
          for (const Consecutive& part : list)
            longer.push_back({static_cast<std::uint64_t>((run.first + i) * stride) + part.whole,
                              (here + i) * here_stride + part.here, part.count});
      }
      here += run.count;
    }
    list = std::move(longer);
  }
  std::vector<Consecutive> short_ones;
  for (const Consecutive& part : list)
    for (std::int64_t done = 0; done < part.count; done += kGrain)
      short_ones.push_back({part.whole + static_cast<std::uint64_t>(done), part.here + done,
                            std::min(kGrain, part.count - done)});
  return short_ones;
}

template <class Element, class Scale>
void drop_all(const Dropping& dropping, const torch::Tensor& x, torch::Tensor& y) {
  const auto* in = static_cast<const Element*>(x.data_ptr());
  auto* out = static_cast<Element*>(y.data_ptr());
  const auto stretches = stretches_of(dropping.where);
  const DropoutStream stream = dropping.stream();
  const auto scale = static_cast<Scale>(dropping.scale());
  const std::int64_t count = static_cast<std::int64_t>(stretches.size());
  const std::int64_t per_task =
      std::max<std::int64_t>(1, count * kGrain / std::max<std::int64_t>(x.numel(), 1));
  at::parallel_for(0, count, per_task, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Consecutive& part = stretches[static_cast<std::size_t>(i)];
      drop(stream, dropping.threshold(), scale, {part.whole, static_cast<std::size_t>(part.count)},
           in + part.here, out + part.here);
    }
  });
}

torch::Tensor drop_on_cpu(const torch::Tensor& given, const Dropping& dropping) {
  const auto x = given.contiguous();
  auto y = torch::empty_like(x);
  switch (x.scalar_type()) {
    case torch::kFloat: drop_all<float, float>(dropping, x, y); break;
    case torch::kDouble: drop_all<double, double>(dropping, x, y); break;
    case torch::kBFloat16: drop_all<std::uint16_t, float>(dropping, x, y); break;
    case torch::kHalf: return drop_on_cpu(x.to(torch::kFloat), dropping).to(torch::kHalf);
    default:
      throw_invalid(std::string("dropout works on float32, float64, bfloat16 or float16, not on ") +
                    c10::toString(x.scalar_type()));
  }
  return y;
}

// Place of every element in the whole.
torch::Tensor places_of(const Where& where, torch::Device device) {
  auto places = torch::zeros({}, torch::TensorOptions().dtype(torch::kLong).device(device));
  for (const HeldIndices& held : where) {
    const auto indices = exchange::indices_of(held.runs);
    places = places.unsqueeze(-1) * held.whole + torch::tensor(indices, torch::kLong).to(device);
  }
  return places;
}

// Philox on words of 32 bits in integers of 64: products wrap, shifts keep the sign, so that both are masked.
torch::Tensor words_of(const torch::Tensor& places, const DropoutStream& stream) {
  const std::int64_t mask = 0xFFFFFFFF;
  const auto block = places.__rshift__(2);
  torch::Tensor c[4] = {block.bitwise_and(mask), block.__rshift__(32).bitwise_and(mask),
                        torch::full_like(places, std::int64_t{stream.site[0]}),
                        torch::full_like(places, std::int64_t{stream.site[1]})};
  std::int64_t k0 = stream.key[0], k1 = stream.key[1];
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const auto p0 = c[0] * std::int64_t{kPhiloxMultiplier[0]};
    const auto p1 = c[2] * std::int64_t{kPhiloxMultiplier[1]};
    c[0] = p1.__rshift__(32).bitwise_and(mask).bitwise_xor(c[1]).bitwise_xor(k0);
    c[1] = p1.bitwise_and(mask);
    c[2] = p0.__rshift__(32).bitwise_and(mask).bitwise_xor(c[3]).bitwise_xor(k1);
    c[3] = p0.bitwise_and(mask);
    k0 = (k0 + kPhiloxWeyl[0]) & mask;
    k1 = (k1 + kPhiloxWeyl[1]) & mask;
  }
  return torch::stack({c[0], c[1], c[2], c[3]}, -1)
      .gather(-1, places.bitwise_and(3).unsqueeze(-1))
      .squeeze(-1);
}

torch::Tensor drop_by_torch(const torch::Tensor& x, const Dropping& dropping) {
  const auto kept_ones = words_of(places_of(dropping.where, x.device()), dropping.stream())
                             .ge(std::int64_t{dropping.threshold()});
  const bool narrow = x.scalar_type() == torch::kBFloat16 || x.scalar_type() == torch::kHalf;
  const auto wide = narrow ? x.to(torch::kFloat) : x;
  // In the type of the elements: a factor of 64 bits would round once more.
  const auto scale = torch::full({}, dropping.scale(), wide.options());
  return torch::where(kept_ones, wide * scale, torch::zeros({}, wide.options()))
      .to(x.scalar_type());
}

// Backward drops the same elements of the gradient.
struct Dropped : torch::autograd::Function<Dropped> {
  static torch::Tensor run(const torch::Tensor& x, const Dropping& dropping, bool by_torch) {
    return by_torch || !x.device().is_cpu() ? drop_by_torch(x, dropping) : drop_on_cpu(x, dropping);
  }
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const Dropping& dropping, bool by_torch) {
    context->saved_data["dropping"] = keep(dropping);
    context->saved_data["by_torch"] = by_torch;
    return run(x, dropping, by_torch);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {run(gradients[0], kept<Dropping>(*context, "dropping"),
                context->saved_data["by_torch"].toBool()),
            torch::Tensor(), torch::Tensor()};
  }
};

torch::Tensor drop_checked(const torch::Tensor& x, const Dropping& dropping, bool by_torch) {
  check(x, dropping);
  return dropping.p == 0 ? x : Dropped::apply(x, dropping, by_torch);
}

}  // namespace

torch::Tensor dropout(const torch::Tensor& x, double p, const DropoutKey& key, const Where& where) {
  return drop_checked(x, {p, key, where}, false);
}

torch::Tensor dropout_by_torch(const torch::Tensor& x, double p, const DropoutKey& key,
                               const Where& where) {
  return drop_checked(x, {p, key, where}, true);
}

}  // namespace tutti::libtorch
