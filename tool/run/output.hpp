// tool/run/output.hpp - what ranks print, line by line, into few places.
//
// All ranks' lines pass through one writer, so a line is never torn by another rank's. Nothing here
// blocks: a slow reader of the launcher's output slows the ranks (their pipes fill up) but never
// the launcher, which must go on to watch them.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/sockets.hpp"

namespace tutti::tool {

// The launcher's own stdout or stderr.
class OutputSink {
 public:
  explicit OutputSink(int descriptor) : descriptor_(descriptor) {}
  int descriptor() const { return descriptor_; }

  void put(std::string_view bytes);
  // Writes what can be written without waiting.
  void flush();
  bool pending() const { return !waiting_.empty(); }
  bool full() const { return waiting_.size() > kRoom; }
  // The errno of a write that failed, 0 while all went well; what is put after that is dropped.
  int error() const { return error_; }
  // Nobody reads any more. That is no failure: whoever reads decides how much.
  bool closed() const;

 private:
  static constexpr std::size_t kRoom = 1 << 20;
  int descriptor_;
  std::string waiting_;
  int error_ = 0;
};

// One stream of one rank: cuts bytes into lines, puts `prefix` before each, remembers the last few.
class LineStream {
 public:
  LineStream(Descriptor pipe, OutputSink* sink, std::string prefix, Descriptor log)
      : pipe_(std::move(pipe)), sink_(sink), prefix_(std::move(prefix)), log_(std::move(log)) {}

  int descriptor() const { return pipe_.get(); }
  bool open() const { return static_cast<bool>(pipe_); }
  bool wants_input() const { return open() && !sink_->full(); }

  // Takes what is there; at the end of the stream a last line without newline is flushed.
  void pump();
  // The same until nothing more is there, and no further: its rank has ended.
  void drain();
  // Gives up on a stream that somebody keeps open although its rank has ended.
  void finish();
  // Lines for which it says true go no further.
  void set_filter(std::function<bool(std::string_view line)> filter) {
    filter_ = std::move(filter);
  }
  // Why the log is cut, if it is.
  const Status& log_failure() const { return log_failure_; }
  const std::deque<std::string>& last_lines() const { return last_lines_; }

 private:
  static constexpr std::size_t kLongestLine = 1 << 20;
  static constexpr std::size_t kRemembered = 10;
  static constexpr std::size_t kRememberedBytes = 400;  // of one line
  void feed(std::string_view bytes);
  void emit(std::string_view line);

  Descriptor pipe_;
  OutputSink* sink_;
  std::string prefix_;
  Descriptor log_;
  Status log_failure_;
  std::string partial_;
  std::deque<std::string> last_lines_;
  std::function<bool(std::string_view line)> filter_;
};

// The launcher's stdout and stderr; one sink for both when they are the same file, so that lines of
// the two do not tear each other either.
struct Sinks {
  std::shared_ptr<OutputSink> out;
  std::shared_ptr<OutputSink> err;
  static Sinks of_this_process();
  bool pending() const { return out->pending() || err->pending(); }
  void flush() const;
  // Code::io where what ranks printed could not be written, though somebody wanted it.
  Status failure() const;
};

}  // namespace tutti::tool
