#include "tool/show/page_schedules.hpp"

#include <cmath>
#include <map>

#include "core/json.hpp"
#include "schedule/drawing.hpp"
#include "schedule/measure.hpp"
#include "tool/show/layout.hpp"
#include "tool/show/show.hpp"
#include "tutti/shape.hpp"

namespace tutti::tool {
namespace {
using schedule::HostForm;
using schedule::Program;
using schedule::Request;

// [first exponent, last exponent, words] of the sizes for which a form runs; neighbours with the same
// words are one.
class Sizes {
 public:
  void add(int exponent, const std::string& words) {
    if (!ranges_.empty() && ranges_.back().last == exponent - 1 && ranges_.back().words == words)
      ranges_.back().last = exponent;
    else
      ranges_.push_back({exponent, exponent, words});
  }
  Json ranges() const {
    Json list = Json::array();
    for (const Range& range : ranges_)
      list.push_back(Json::array({range.first, range.last, range.words}));
    return list;
  }

 private:
  struct Range {
    int first, last;
    std::string words;
  };
  std::vector<Range> ranges_;
};

// By where the ranks sit: apart, hosts, or on one host with ordinary or symmetric memory.
using Runs = std::map<std::string, Sizes>;

Json to_json(const Runs& runs) {
  Json object = Json::object();
  for (const auto& [where, sizes] : runs) object[where] = sizes.ranges();
  return object;
}

Json to_json(const Layout& layout) {
  const auto rounded = [](const std::vector<double>& values) {
    Json list = Json::array();
    for (const double value : values) list.push_back(std::round(value * 1000) / 1000);
    return list;
  };
  return {{"kind", layout.kind},
          {"x", rounded(layout.x)},
          {"y", rounded(layout.y)},
          {"hosts", layout.hosts}};
}

Json to_json(const schedule::Measure& measure) {
  return {{"chain", measure.chain},
          {"messages", measure.messages},
          {"moved", measure.moved},
          {"folded", measure.folded},
          {"parts", measure.parts}};
}

// What the busiest rank of a host form copies and folds, in chunks.
Json measure_of(const HostVariant& variant) {
  double copied = 0, folded = 0;
  for (const HostForm& form : variant.ranks) {
    double copies = 0, folds = 0;
    for (const schedule::HostPhase& phase : form.phases) {
      for (const schedule::HostMove& move : phase.moves)
        copies +=
            move.action == schedule::HostAction::give ? move.givers_share : 1 - move.givers_share;
      if (!phase.fold) continue;
      folds += static_cast<double>(phase.fold->operands.size() - 1);
      copies += static_cast<double>(phase.fold->puts.size() + (phase.fold->keeps_result ? 1 : 0));
    }
    if (copies + folds <= copied + folded) continue;
    copied = copies;
    folded = folds;
  }
  return {{"meetings", variant.report.steps},
          {"copied", std::round(copied * 1000) / 1000},
          {"folded", folded},
          {"parts", schedule::part_count(variant.ranks.front().frame)}};
}

// `head` and then the cells and ops of all ranks, which are text already.
std::string with_ranks(const Json& head, const std::string& ranks) {
  std::string text = head.dump();
  text.back() = ',';
  return text + "\"ranks\":" + ranks + "}";
}

// All forms of one algorithm.
class Drawer {
 public:
  Drawer(const PageRequest& page, Algorithm algorithm, bool in_place)
      : page_(page), algorithm_(algorithm), request_(page.request) {
    request_.in_place = in_place;
    // Only there it matters: a torus by hosts is another torus.
    if (schedule::wants_hosts(algorithm)) request_.host_of = page.host_of;
    has_shots_ = has_shots(algorithm, request_);
  }

  Status draw(std::string& list) {
    for (int shots = has_shots_ ? 1 : 2; shots <= 2; ++shots) {
      request_.shots = shots;
      if (Status status = add_host(); !status.ok()) return status;
      if (Status status = add_messages(); !status.ok()) return status;
    }
    for (const HostDrawn& drawn : hosts_)
      if (!drawn.runs.empty()) texts_.push_back(draw_host(drawn));
    for (const std::string& text : texts_) list += (list.empty() ? "\n" : ",\n") + text;
    return {};
  }

 private:
  struct HostDrawn {
    HostVariant variant;
    Runs runs;
  };

  // Calls visit(exponent) for the sizes for which the tuner takes as many shots as are drawn now.
  template <class Visit>
  void each_size(bool on_one_host, std::span<const int> host_of, Visit visit) const {
    Request placed = request_;
    placed.host_of = host_of;
    for (int exponent = kLeastExponent; exponent <= kMostExponent; ++exponent) {
      if (has_shots_) {
        const auto choice =
            choose(placed, algorithm_, on_one_host, std::size_t{1} << exponent, page_.machine);
        if (choice.ok() && choice->shots != request_.shots) continue;
      }
      visit(exponent);
    }
  }

  // The same form may come from one shot and from two.
  HostDrawn& drawn_as(const HostVariant& variant) {
    for (HostDrawn& drawn : hosts_)
      if (drawn.variant.ranks == variant.ranks) return drawn;
    return hosts_.emplace_back(HostDrawn{variant, {}});
  }

  Status add_host() {
    has_host_form_ = false;
    if (schedule::wants_hosts(algorithm_)) return {};
    const auto view = HostView::make(algorithm_, request_);
    if (!view.ok()) return view.status();
    if (!*view) return {};
    has_host_form_ = true;
    const bool crowded = page_.machine.crowding(request_.size) > 1;
    each_size(true, {}, [&](int exponent) {
      const std::size_t bytes = std::size_t{1} << exponent;
      const schedule::HostWay way = (*view)->way(bytes, crowded);
      for (const auto& [memory, name] : {std::pair(CallMemory::ordinary, "ordinary"),
                                         std::pair(CallMemory::symmetric, "symmetric")}) {
        const schedule::Reach reach = (*view)->reach(way, memory);
        drawn_as(*(*view)->find(reach))
            .runs[name]
            .add(exponent, (*view)->use(reach, bytes, crowded).words);
      }
    });
    return {};
  }

  std::string draw_host(const HostDrawn& drawn) const {
    Json head = head_of(drawn.variant.ranks.front().frame, drawn.variant.report, drawn.runs);
    head.update({{"form", "host"},
                 {"reach", to_string(drawn.variant.reach)},
                 {"layout", to_json(lay_out_on_one_host(request_.size))},
                 {"measure", measure_of(drawn.variant)}});
    return with_ranks(head, schedule::print_drawing(drawn.variant.ranks));
  }

  Runs message_runs() const {
    Runs runs;
    const auto add = [&](const char* where, bool on_one_host, std::span<const int> host_of) {
      each_size(on_one_host, host_of, [&](int exponent) { runs[where].add(exponent, ""); });
    };
    if (!page_.host_of.empty()) add("hosts", false, page_.host_of);
    if (schedule::wants_hosts(algorithm_)) return runs;
    add("apart", false, {});
    for (const char* memory : {"ordinary", "symmetric"})
      if (!has_host_form_) add(memory, true, {});
    return runs;
  }

  Status add_messages() {
    const auto forms = message_forms(algorithm_, request_);
    if (!forms.ok()) return forms.status();
    const Runs runs = message_runs();
    if (runs.empty()) return {};
    const MessageForm& last = forms->back();
    const auto measure = schedule::measure(last.programs);
    if (!measure.ok()) return measure.status();
    Json head = head_of(last.programs.front(), last.report, runs);
    head.update({{"form", "message"},
                 {"pass", last.pass},
                 {"messages", last.report.messages},
                 {"layout", to_json(lay_out(last.programs, request_.host_of))},
                 {"measure", to_json(*measure)}});
    if (has_shots_) head["shots"] = request_.shots;
    std::string before;
    for (const MessageForm& form :
         std::span(*forms).first(page_.all_passes ? forms->size() - 1 : 0))
      before += (before.empty() ? "" : ",") +
                with_ranks({{"pass", form.pass}}, schedule::print_drawing(form.programs));
    std::string text = with_ranks(head, schedule::print_drawing(last.programs));
    text.back() = ',';
    texts_.push_back(text + "\"before\":[" + before + "]}");
    return {};
  }

  Json head_of(const Program& model, const schedule::VerifyReport& report, const Runs& runs) const {
    return {{"algorithm", to_string(algorithm_)},
            {"size", request_.size},
            {"root", request_.root},
            {"in_place", request_.in_place},
            {"rooted", has_root(request_.collective)},
            {"cut", model.cut},
            {"extents_per_colour", schedule::extents_per_colour(model)},
            {"steps", report.steps},
            {"rank_ordered", report.rank_ordered},
            {"tree_ordered", report.tree_ordered},
            {"whole_folds", report.whole_folds},
            {"runs", to_json(runs)}};
  }

  const PageRequest& page_;
  Algorithm algorithm_;
  Request request_;
  bool has_shots_ = false;
  bool has_host_form_ = false;
  std::vector<HostDrawn> hosts_;
  std::vector<std::string> texts_;
};

}  // namespace

Status add_schedules(const PageRequest& page, std::string& list) {
  const CollectiveShape& shape = shape_of(page.request.collective);
  // Whether input and output can be apart; more than that would make large pages too large.
  constexpr int kMostApart = 12;
  const bool two_sides =
      shape.has_data() && !shape.has_one_buffer() && page.request.size <= kMostApart;
  for (const Algorithm algorithm : schedule::algorithms_for(page.request.collective)) {
    for (const bool in_place : {true, false}) {
      if (!in_place && !two_sides) continue;
      Status status = Drawer(page, algorithm, in_place).draw(list);
      // Not every algorithm exists for every number of ranks.
      if (!status.ok() && status.code() != Code::invalid_argument) return status;
    }
  }
  return {};
}

}  // namespace tutti::tool
