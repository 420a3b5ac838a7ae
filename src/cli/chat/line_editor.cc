#include "cli/chat/line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "base/unicode.h"
#include "cli/chat/text.h"

namespace weft::cli {
namespace {

// An event that precedes the next byte of stdin, if any.
std::optional<LineEditor::Result> Interruption(const ChatSignals::Seen& seen) {
  if (seen.leave) return LineEditor::Result::kEnd;
  if (seen.interrupt) return LineEditor::Result::kInterrupted;
  return std::nullopt;
}

// read(2) on stdin; 0 at the end or after an error, when there is nothing more to read.
size_t ReadStdin(char* bytes, size_t size) {
  ssize_t n;
  do {
    n = read(STDIN_FILENO, bytes, size);
  } while (n < 0 && (errno == EINTR || errno == EAGAIN));
  return n > 0 ? static_cast<size_t>(n) : 0;
}

class PlainReader : public LineEditor {
 public:
  explicit PlainReader(ChatSignals* signals) : signals_(signals) {}

  bool is_terminal() const override { return false; }

  Result Read(const std::string& prompt, std::string* line) override {
    while (true) {
      const size_t end = buffer_.find('\n', searched_);
      if (end != buffer_.npos || (ended_ && !buffer_.empty())) return Take(end, line);
      searched_ = buffer_.size();
      if (ended_) return Result::kEnd;
      const bool readable = signals_->Wait(STDIN_FILENO);
      if (const auto result = Interruption(signals_->Take())) return *result;
      if (!readable) continue;
      char bytes[4096];
      const size_t n = ReadStdin(bytes, sizeof(bytes));
      buffer_.append(bytes, n);
      ended_ = n == 0;
    }
  }

 private:
  Result Take(size_t end, std::string* line) {
    *line = ValidUtf8(std::string_view(buffer_).substr(0, end));
    if (line->ends_with('\r')) line->pop_back();
    buffer_.erase(0, end == buffer_.npos ? end : end + 1);
    searched_ = 0;
    return Result::kLine;
  }

  ChatSignals* const signals_;
  std::string buffer_;
  size_t searched_ = 0;  // no line end before this
  bool ended_ = false;
};

class TerminalEditor : public LineEditor {
 public:
  TerminalEditor(ChatSignals* signals, Complete complete)
      : signals_(signals), complete_(std::move(complete)) {
    // The editor uses the locale to convert characters to bytes; this is a fallback if the locale
    // knows only ASCII.
    std::setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    history_ = history_winit();
    HistEventW event;
    history_w(history_, &event, H_SETSIZE, kHistoryLines);
    history_w(history_, &event, H_SETUNIQUE, 1);
    editor_ = el_init("weft", stdin, stdout, stderr);
    el_wset(editor_, EL_CLIENTDATA, this);
    el_wset(editor_, EL_EDITOR, L"emacs");
    el_wset(editor_, EL_SIGNAL, 0);
    el_wset(editor_, EL_PROMPT, &TerminalEditor::Prompt);
    el_wset(editor_, EL_GETCFN, &TerminalEditor::ReadCharacter);
    el_wset(editor_, EL_HIST, history_w, history_);
    el_wset(editor_, EL_ADDFN, L"weft-paste", L"Insert pasted text", &TerminalEditor::Paste);
    el_wset(editor_, EL_BIND, L"\\e[200~", L"weft-paste", nullptr);
    el_wset(editor_, EL_ADDFN, L"weft-complete", L"Complete", &TerminalEditor::CompleteWord);
    el_wset(editor_, EL_BIND, L"^I", L"weft-complete", nullptr);
    el_source(editor_, nullptr);
  }

  ~TerminalEditor() override {
    el_end(editor_);
    history_wend(history_);
  }

  bool is_terminal() const override { return true; }

  Result Read(const std::string& prompt, std::string* line) override {
    prompt_ = Widen(prompt);
    interruption_.reset();
    // Before the prompt, so that a key pressed at once is read like any other.
    el_wset(editor_, EL_PREP_TERM, 1);
    TellTerminal(kMarkPastes);
    int n = 0;
    const wchar_t* const text = el_wgets(editor_, &n);
    TellTerminal(kMarkNoPastes);
    if (interruption_.has_value() || text == nullptr || n <= 0) {
      el_reset(editor_);
      std::fputc('\n', stdout);
      std::fflush(stdout);
      return interruption_.value_or(Result::kEnd);
    }
    line->clear();
    if (text[n - 1] == L'\n') --n;
    for (int i = 0; i < n; ++i) AppendUtf8(static_cast<char32_t>(text[i]), line);
    if (line->find_first_not_of(" \t") != line->npos) {
      HistEventW event;
      history_w(history_, &event, H_ENTER, text);
    }
    return Result::kLine;
  }

 private:
  static constexpr int kHistoryLines = 1000;
  // Make the terminal mark pasted text.
  static constexpr char kMarkPastes[] = "\033[?2004h", kMarkNoPastes[] = "\033[?2004l";

  static void TellTerminal(const char* text) {
    std::fputs(text, stdout);
    std::fflush(stdout);
  }

  static TerminalEditor* Of(EditLine* editor) {
    void* self = nullptr;
    el_wget(editor, EL_CLIENTDATA, &self);
    return static_cast<TerminalEditor*>(self);
  }

  static wchar_t* Prompt(EditLine* editor) { return Of(editor)->prompt_.data(); }

  static std::wstring Widen(std::string_view text) {
    std::wstring wide;
    while (!text.empty()) {
      const DecodedChar c = DecodeLenient(text);
      wide += static_cast<wchar_t>(c.code);
      text.remove_prefix(c.bytes);
    }
    return wide;
  }

  // Takes everything up to the end mark: normalises line ends, drops control characters.
  static unsigned char Paste(EditLine* editor, wint_t) {
    static constexpr std::wstring_view kEnd = L"\033[201~";
    std::wstring pasted;
    wchar_t c;
    while (!pasted.ends_with(kEnd)) {
      if (ReadCharacter(editor, &c) != 1) return CC_EOF;
      pasted += c;
    }
    pasted.erase(pasted.size() - kEnd.size());
    std::wstring text;
    for (size_t i = 0; i < pasted.size(); ++i) {
      if (pasted[i] == L'\r') {
        text += L'\n';
        if (i + 1 < pasted.size() && pasted[i + 1] == L'\n') ++i;
      } else if (pasted[i] == L'\t') {
        text += L"    ";  // the editor would show a tab as is, and misplace the cursor
      } else if (pasted[i] >= L' ' || pasted[i] == L'\n') {
        text += pasted[i];
      }
    }
    // If a pasted line includes its end, let the user see it before it is sent.
    while (text.ends_with(L'\n')) text.pop_back();
    el_winsertstr(editor, text.c_str());
    return CC_REFRESH;
  }

  static unsigned char CompleteWord(EditLine* editor, wint_t) {
    TerminalEditor* const self = Of(editor);
    const LineInfoW* const info = el_wline(editor);
    std::string line;
    for (const wchar_t* c = info->buffer; c != info->cursor; ++c) {
      AppendUtf8(static_cast<char32_t>(*c), &line);
    }
    const ChatCompletions found = self->complete_(line);
    if (found.candidates.empty()) return CC_ERROR;
    std::string common = found.candidates[0];
    for (const std::string& candidate : found.candidates) {
      size_t n = 0;
      while (n < common.size() && n < candidate.size() && common[n] == candidate[n]) ++n;
      while (n < common.size() && IsContinuationByte(common[n])) --n;  // not inside a character
      common.resize(n);
    }
    std::string more = common.substr(std::min(common.size(), line.size() - found.begin));
    if (found.candidates.size() == 1) more += ' ';
    if (!more.empty()) {
      el_winsertstr(editor, Widen(more).c_str());
      return CC_REFRESH;
    }
    std::fprintf(stdout, "\n%s\n", ForTerminal(StrJoin(found.candidates, "  ")).c_str());
    std::fflush(stdout);
    return CC_REDISPLAY;
  }

  // The editor's source of characters: 1 for one, 0 at the end, -1 if interrupted.
  static int ReadCharacter(EditLine* editor, wchar_t* c) {
    TerminalEditor* const self = Of(editor);
    std::string bytes;
    while (true) {
      if (!self->WaitForInput()) return -1;
      char byte;
      if (ReadStdin(&byte, 1) == 0) return 0;
      bytes += byte;
      const int length = StrictCharLength(bytes);
      if (length == 0) continue;
      *c = static_cast<wchar_t>(length > 0 ? DecodeLenient(bytes).code : kReplacementChar);
      return 1;
    }
  }

  // False if the line is interrupted.
  bool WaitForInput() {
    while (true) {
      const bool readable = signals_->Wait(STDIN_FILENO);
      const ChatSignals::Seen seen = signals_->Take();
      interruption_ = Interruption(seen);
      if (interruption_.has_value()) return false;
      if (seen.resized) el_resize(editor_);
      if (seen.resumed) {  // whoever used the terminal meanwhile left it in another mode
        el_wset(editor_, EL_PREP_TERM, 1);
        el_wset(editor_, EL_REFRESH);
      }
      if (readable) return true;
    }
  }

  ChatSignals* const signals_;
  const Complete complete_;
  EditLine* editor_ = nullptr;
  HistoryW* history_ = nullptr;
  std::wstring prompt_;
  std::optional<Result> interruption_;
};

}  // namespace

std::unique_ptr<LineEditor> LineEditor::Create(ChatSignals* signals, Complete complete) {
  if (isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1) {
    return std::make_unique<TerminalEditor>(signals, std::move(complete));
  }
  return std::make_unique<PlainReader>(signals);
}

}  // namespace weft::cli
