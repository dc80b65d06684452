// tool/show/forms.hpp - the forms of one call, each proved right: what `tutti show` prints and draws.
//
// Between hosts ranks run the message form: as it was built, then rewritten by passes. Ranks of one
// host run host forms where there are any; which of them follows from the size of the call, and from
// the memory that the ranks pass (docs/algorithms/on_one_host.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/catalog.hpp"
#include "schedule/host/forms.hpp"
#include "schedule/verify.hpp"

namespace tutti::tool {

// All ranks' programs after one pass.
struct MessageForm {
  std::string_view pass;     // "as built", or its name
  std::string_view changes;  // what the pass did, in words; empty: nothing
  std::vector<schedule::Program> programs;
  schedule::VerifyReport report;
};

// One for every pass that changes something, in this order; the last one runs. Never empty.
// Code::invalid_argument when the algorithm does not exist for this request.
Result<std::vector<MessageForm>> message_forms(Algorithm algorithm,
                                               const schedule::Request& request);

// Why ranks of one host send these messages too instead of meeting: a sentence; empty when they meet.
std::string why_by_message(const MessageForm& form);

// All ranks' forms for one reach.
struct HostVariant {
  schedule::Reach reach = schedule::Reach::window;
  std::vector<schedule::HostForm> ranks;
  schedule::VerifyReport report;
};

// What the ranks pass: memory of their own, or such as Group::allocate gives, which all of the host
// have mapped; as the source of what others read, or everywhere.
enum class CallMemory : std::uint8_t { ordinary, symmetric_source, symmetric };

// When a form runs, or why it does not, in words.
struct HostUse {
  bool runs = false;
  std::string words;
};

// The host forms of a call, and which of them runs.
class HostView {
 public:
  // Empty when ranks of one host send messages too.
  static Result<std::optional<HostView>> make(Algorithm algorithm,
                                              const schedule::Request& request);

  // Null: there is none, or it cannot run as the ranks' inputs and outputs overlap.
  const HostVariant* find(schedule::Reach reach) const;

  // `bytes`: of the call, the whole array.
  schedule::HostWay way(std::size_t bytes, bool crowded) const;
  // The form that runs when all ranks pass such memory.
  schedule::Reach reach(const schedule::HostWay& way, CallMemory memory) const;
  HostUse use(schedule::Reach reach, std::size_t bytes, bool crowded) const;

 private:
  std::string words_for_window(const schedule::HostWay& way) const;
  std::string why_not(schedule::Reach reach, const schedule::HostWay& way, bool crowded) const;

  std::vector<schedule::HostForms> ranks_;
  std::vector<HostVariant> variants_;
  // Whether peers may work on all ranks' own buffers (HostForm::unaliased).
  bool unaliased_ = true;
};

}  // namespace tutti::tool
