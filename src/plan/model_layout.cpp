#include "plan/model_layout.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::plan {
namespace {

Status wrong(std::string text) { return Status(Code::invalid_argument, std::move(text)); }

Status check_numbers(const ModelLayout& layout) {
  struct Positive {
    const char* name;
    std::int64_t value;
  };
  for (const auto& [name, value] : {Positive{"dp", layout.dp},
                                    {"tp", layout.tp},
                                    {"pp", layout.pp},
                                    {"cp", layout.cp},
                                    {"virtual_stages", layout.virtual_stages},
                                    {"micro_batch", layout.micro_batch}})
    if (value < 1) return wrong(fmt::format("{} must be at least 1, not {}", name, value));
  if (layout.zero < 0 || layout.zero > 3)
    return wrong(fmt::format("zero must be 0, 1, 2 or 3, not {}", layout.zero));
  if (layout.seq < 0 || layout.global_batch < 0 || layout.bucket_bytes < 0)
    return wrong("seq, global_batch and bucket_bytes must not be negative");
  // Everything else multiplies these as int.
  if (double(layout.dp) * layout.tp * layout.pp * layout.cp * layout.virtual_stages > 1e7)
    return wrong("dp × tp × pp × cp × virtual_stages is more than 10 million");
  return {};
}

Status check_split(const ModelLayout& layout, const Model& model) {
  if (model.heads % layout.tp != 0)
    return wrong(fmt::format("tp {} does not divide the {} heads", layout.tp, model.heads));
  if (model.kv_heads % layout.tp != 0)
    return wrong(fmt::format("tp {} does not divide the {} kv_heads", layout.tp, model.kv_heads));
  if (model.ffn % layout.tp != 0)
    return wrong(fmt::format("tp {} does not divide the ffn width {}", layout.tp, model.ffn));
  const int pieces = layout.pp * layout.virtual_stages;
  if (model.layers % pieces != 0)
    return wrong(layout.virtual_stages == 1
                     ? fmt::format("pp {} does not divide the {} layers", layout.pp, model.layers)
                     : fmt::format("pp {} × virtual_stages {} does not divide the {} layers",
                                   layout.pp, layout.virtual_stages, model.layers));
  if (layout.virtual_stages > 1 && layout.pp == 1)
    return wrong("virtual_stages needs pp of at least 2");
  if (layout.seq % layout.cp != 0)
    return wrong(
        fmt::format("cp {} does not divide the sequence of {} tokens", layout.cp, layout.seq));
  if (layout.sequence_parallel && layout.seq / layout.cp % layout.tp != 0)
    return wrong(fmt::format("sequence parallelism: tp {} does not divide the {} tokens of a rank",
                             layout.tp, layout.seq / layout.cp));
  if (model.max_positions != 0 && layout.seq > model.max_positions)
    return wrong(fmt::format("seq {} is longer than the model's {} positions", layout.seq,
                             model.max_positions));
  return {};
}

Status check_batches(const ModelLayout& layout) {
  const std::int64_t at_once = std::int64_t{layout.dp} * layout.micro_batch;
  if (layout.global_batch % at_once != 0)
    return wrong(fmt::format("global_batch {} is not a multiple of {} (dp {} × micro_batch {})",
                             layout.global_batch, at_once, layout.dp, layout.micro_batch));
  if (layout.virtual_stages > 1 && layout.micro_batches() % layout.pp != 0)
    return wrong(fmt::format("virtual_stages: pp {} does not divide the {} micro-batches of a step",
                             layout.pp, layout.micro_batches()));
  return {};
}

}  // namespace

std::string_view to_string(Recompute recompute) noexcept {
  switch (recompute) {
    case Recompute::none: return "none";
    case Recompute::selective: return "selective";
    case Recompute::full: return "full";
  }
  return "?";
}

std::optional<Recompute> parse_recompute(std::string_view word) noexcept {
  for (int i = 0; i < kRecomputes; ++i)
    if (to_string(static_cast<Recompute>(i)) == word) return static_cast<Recompute>(i);
  return std::nullopt;
}

std::optional<Precision> parse_precision(std::string_view word) noexcept {
  for (const Precision& each :
       {Precision{"bf16", 2, 4, 12}, Precision{"fp16", 2, 2, 16}, Precision{"fp32", 4, 4, 8}})
    if (each.name == word) return each;
  return std::nullopt;
}

pipeline::PipelineKind ModelLayout::schedule() const {
  return virtual_stages > 1 ? pipeline::PipelineKind::interleaved
                            : pipeline::PipelineKind::one_f_one_b;
}

pipeline::PipelineShape ModelLayout::pipeline_shape() const {
  constexpr std::int64_t kMost = 1'000'000'000;  // a step of more has no bubble to speak of
  return {pp, static_cast<int>(std::min(micro_batches(), kMost)), virtual_stages};
}

// Megatron: 40 million elements, or a million a rank where that is more, so that large rings still
// have pieces worth sending.
double ModelLayout::gradient_bucket_bytes() const {
  if (bucket_bytes > 0) return bucket_bytes;
  return std::max(40e6, 1e6 * data_ranks()) * precision.gradient;
}

Result<ModelLayout> complete(ModelLayout layout, const Model& model, const Cluster& cluster) {
  if (Status status = check_numbers(layout); !status.ok()) return status;
  if (layout.seq == 0) layout.seq = static_cast<int>(model.context);
  if (layout.global_batch == 0) layout.global_batch = std::int64_t{layout.dp} * layout.micro_batch;
  if (layout.tp == 1) layout.sequence_parallel = false;
  for (const Status& status : {check_split(layout, model), check_batches(layout)})
    if (!status.ok()) return status;
  if (cluster.max_ranks > 0 && layout.ranks() > cluster.max_ranks)
    return wrong(fmt::format("dp {} × tp {} × pp {} × cp {} are {} ranks; cluster {} has {}",
                             layout.dp, layout.tp, layout.pp, layout.cp, layout.ranks(),
                             cluster.name, cluster.max_ranks));
  const Processor& processor = cluster.processor;
  if (!(processor.peak_flops > 0 && processor.efficiency > 0 && processor.memory_bytes > 0))
    return wrong(
        fmt::format("cluster {} does not say what its ranks compute with: peak_flops, "
                    "efficiency and memory_bytes of its processor are needed",
                    cluster.name));
  return layout;
}

}  // namespace tutti::plan
