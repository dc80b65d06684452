#include "split.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace pretrain {

using tutti::Code;
using tutti::GroupSpec;
using tutti::Status;
using tutti::pipeline::PipelineKind;

namespace {

Status unfit(std::string text) { return {Code::invalid_argument, std::move(text)}; }

Status check_tensor(const Flags& flags) {
  if (flags.num_attention_heads % flags.tensor_parallel != 0)
    return unfit(fmt::format(
        "--num-attention-heads {} cannot be shared out over --tensor-model-parallel-size {}",
        flags.num_attention_heads, flags.tensor_parallel));
  if (flags.query_groups() % flags.tensor_parallel != 0)
    return unfit(fmt::format(
        "--num-query-groups {} cannot be shared out over --tensor-model-parallel-size {}",
        flags.query_groups(), flags.tensor_parallel));
  if (flags.swiglu && flags.ffn() % flags.tensor_parallel != 0)
    return unfit(fmt::format(
        "--ffn-hidden-size {} cannot be shared out over --tensor-model-parallel-size {}",
        flags.ffn(), flags.tensor_parallel));
  if (flags.tp_comm_overlap && !flags.sequence_parallel)
    return unfit("--tp-comm-overlap needs --sequence-parallel");
  const int tokens = flags.seq_length / flags.context_parallel;
  if (flags.sequence_parallel && tokens % flags.tensor_parallel != 0)
    return unfit(
        fmt::format("--sequence-parallel: {} tokens cannot be shared out over "
                    "--tensor-model-parallel-size {}",
                    tokens, flags.tensor_parallel));
  return {};
}

// A zigzag cut gives each rank two chunks of a sequence, all of one length.
Status check_context(const Flags& flags) {
  const int cp = flags.context_parallel;
  if (cp == 1) return {};
  if (flags.seq_length % (2 * cp) != 0)
    return unfit(
        fmt::format("--seq-length {} is not a multiple of {}, twice --context-parallel-size",
                    flags.seq_length, 2 * cp));
  const auto& sizes = flags.hierarchical_cp_sizes;
  const bool hierarchical = flags.cp_comm_type == "a2a+p2p";
  if (hierarchical != !sizes.empty())
    return unfit("--cp-comm-type a2a+p2p and --hierarchical-context-parallel-sizes go together");
  if (hierarchical && sizes[0] * sizes[1] != cp)
    return unfit(
        fmt::format("--hierarchical-context-parallel-sizes {} {} are not "
                    "--context-parallel-size {} ranks",
                    sizes[0], sizes[1], cp));
  const int exchanging = hierarchical ? sizes[0] : flags.cp_comm_type == "a2a" ? cp : 1;
  for (const int heads : {flags.num_attention_heads, flags.query_groups()})
    if (heads / flags.tensor_parallel % exchanging != 0)
      return unfit(fmt::format("--cp-comm-type {}: {} heads cannot be shared out over {} ranks",
                               flags.cp_comm_type, heads / flags.tensor_parallel, exchanging));
  if (flags.cp_window_size > 0 && (flags.cp_comm_type != "p2p" || cp % flags.cp_window_size != 0))
    return unfit(fmt::format(
        "--cp-window-size {} needs --cp-comm-type p2p, and must divide --context-parallel-size {}",
        flags.cp_window_size, cp));
  return {};
}

Status check_pipeline_layers(const Flags& flags) {
  const int pp = flags.pipeline_parallel;
  const int each = flags.layers_per_virtual_stage;
  if (each > 0 && (pp == 1 || flags.first_stage_layers > 0 || flags.last_stage_layers > 0))
    return unfit(
        "--num-layers-per-virtual-pipeline-stage needs --pipeline-model-parallel-size above 1, "
        "and no --decoder-first- or --decoder-last-pipeline-num-layers");
  if (each > 0 && flags.num_layers % (each * pp) != 0)
    return unfit(fmt::format("--num-layers {} are not stages of {} layers on {} ranks",
                             flags.num_layers, each, pp));
  const int ends = flags.first_stage_layers + flags.last_stage_layers;
  const int others = pp - (flags.first_stage_layers > 0) - (flags.last_stage_layers > 0);
  if (others == 0 ? ends != flags.num_layers : ends + others > flags.num_layers)
    return unfit(
        fmt::format("--num-layers {} cannot be shared out over --pipeline-model-parallel-size "
                    "{}{}",
                    flags.num_layers, pp,
                    ends > 0 ? fmt::format(", with {} in the first and last stage", ends) : ""));
  return {};
}

// What was made for a model that every rank has the whole of.
Status check_whole_only(const Flags& flags) {
  const auto refuse = [](const char* flag) {
    return unfit(
        fmt::format("{} needs ranks that have the whole model each, without tensor, pipeline "
                    "or context parallelism",
                    flag));
  };
  if (flags.on_failure == kShrink) return refuse("--on-failure shrink");
  if (flags.predict) return refuse("--predict");
  if (flags.device == kCuda) return refuse("--device cuda");
  return {};
}

}  // namespace

PipelineKind pipeline_kind(const Flags& flags) {
  if (flags.pipeline_schedule.empty())
    return flags.layers_per_virtual_stage > 0 ? PipelineKind::interleaved
                                              : PipelineKind::one_f_one_b;
  return tutti::pipeline::parse_pipeline_kind(flags.pipeline_schedule)
      .value_or(PipelineKind::one_f_one_b);
}

tutti::Result<SplitSizes> split_sizes(const Flags& flags, int ranks) {
  SplitSizes sizes;
  sizes.tp = flags.tensor_parallel;
  sizes.pp = flags.pipeline_parallel;
  sizes.cp = flags.context_parallel;
  const std::int64_t each = std::int64_t{sizes.tp} * sizes.pp * sizes.cp;
  if (ranks % each != 0)
    return unfit(
        fmt::format("{} rank{} not a multiple of {}, which --tensor-model-parallel-size {}, "
                    "--pipeline-model-parallel-size {} and --context-parallel-size {} make",
                    ranks, ranks == 1 ? " is" : "s are", each, sizes.tp, sizes.pp, sizes.cp));
  sizes.dp = ranks / static_cast<int>(each);
  if (flags.layers_per_virtual_stage > 0)
    sizes.virtual_stages = flags.num_layers / (flags.layers_per_virtual_stage * sizes.pp);
  for (const auto check : {check_tensor, check_context, check_pipeline_layers})
    if (Status status = check(flags); !status.ok()) return status;
  if (!sizes.is_whole())
    if (Status status = check_whole_only(flags); !status.ok()) return status;
  return sizes;
}

std::vector<LayerRange> layers_of_places(const Flags& flags, int places) {
  std::vector<int> counts(static_cast<std::size_t>(places), 0);
  int left = flags.num_layers - flags.first_stage_layers - flags.last_stage_layers;
  counts.front() += flags.first_stage_layers;
  counts.back() += flags.last_stage_layers;
  std::vector<std::size_t> open;
  for (std::size_t place = 0; place < counts.size(); ++place)
    if (counts[place] == 0) open.push_back(place);
  for (std::size_t i = 0; i < open.size(); ++i) {
    const int others = static_cast<int>(open.size() - i);
    counts[open[i]] = (left + others - 1) / others;
    left -= counts[open[i]];
  }
  std::vector<LayerRange> ranges;
  int first = 0;
  for (const int count : counts) {
    ranges.push_back({first, count});
    first += count;
  }
  return ranges;
}

tutti::Result<Split> Split::create(std::shared_ptr<tutti::Group> group, const Flags& flags) {
  auto sizes = split_sizes(flags, group->size());
  if (!sizes.ok()) return sizes.status();
  Split split;
  split.sizes_ = *sizes;
  split.everyone_ = group;
  if (sizes->is_whole()) {
    // No mesh: whoever comes back makes its split alone, while the others wait elsewhere.
    split.data_ = group;
    split.at_ = {.dp = group->rank(), .tp = 0, .pp = 0, .cp = 0};
    return split;
  }
  tutti::MeshOptions options;
  options.specs["tp"] = {"tp", {}, tutti::Urgency::urgent};
  options.specs["cp"] = {"cp", {}, tutti::Urgency::urgent};
  options.specs["pp"] = {"pp", {}, tutti::Urgency::urgent};
  options.combinations = {{"dp", "cp"}};
  auto mesh = tutti::Mesh::create(
      group, {{"pp", sizes->pp}, {"dp", sizes->dp}, {"cp", sizes->cp}, {"tp", sizes->tp}}, options);
  if (!mesh.ok()) return mesh.status();
  split.mesh_ = *mesh;
  if (Status status = split.make_groups(flags); !status.ok()) return status;
  return split;
}

Status Split::make_groups(const Flags& flags) {
  const tutti::Coordinates at = mesh_->coordinates();
  at_ = {.dp = at[1], .tp = at[3], .pp = at[0], .cp = at[2]};
  const auto along = [&](const char* axis, int size, std::shared_ptr<tutti::Group>& group) {
    auto made = mesh_->along(axis);
    if (made.ok() && size > 1) group = *made;
    return made.status();
  };
  if (Status status = along("tp", sizes_.tp, tensor_); !status.ok()) return status;
  if (Status status = along("cp", sizes_.cp, context_); !status.ok()) return status;
  if (Status status = along("pp", sizes_.pp, pipeline_); !status.ok()) return status;
  auto data = mesh_->along("dp", "cp");
  if (!data.ok()) return data.status();
  data_ = *data;
  const bool tied = !flags.untie_embeddings_and_output_weights && sizes_.pp > 1;
  if (!tied || !(is_first_stage() || is_last_stage())) return {};
  const int ends[] = {0, sizes_.pp - 1};
  auto made = pipeline_->subgroup(ends, 1, {"ends of the pipeline"});
  if (made.ok()) ends_ = *made;
  return made.status();
}

void Split::abort(const std::string& reason) const {
  for (const auto& group : {pipeline_, context_, tensor_, ends_, data_, everyone_})
    if (group && group->health().ok()) group->abort(reason);
}

tutti::train::Groups Split::groups() const {
  tutti::train::Groups groups;
  groups.data = data_;
  groups.everyone = everyone_;
  if (!sizes_.is_whole()) groups.sums = {tensor_, ends_};
  if (sizes_.tp * sizes_.pp > 1) groups.part = fmt::format("pp {}, tp {}", at_.pp, at_.tp);
  return groups;
}

}  // namespace pretrain
