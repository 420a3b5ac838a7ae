#include "answer/prompt_rows.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "answer/error_details.h"
#include "base/new_id.h"
#include "base/strings.h"

namespace weft::serve {
namespace {

// Texts that are encoded together, up to the next embeddings.
class PartMaker {
 public:
  PartMaker(PromptEncoder encoder, std::string_view whole, std::span<const TokenSpan> known)
      : encoder_(std::move(encoder)), inside_(encoder_), whole_(whole), known_(known) {
    inside_.encode = [this](std::string_view text, bool) { return encoder_.encode(text, false); };
  }

  // The bytes [begin, end) of the whole text.
  void AddText(size_t begin, size_t end) {
    const size_t at = text_.size();
    text_ += whole_.substr(begin, end - begin);
    for (const TokenSpan& span : known_) {
      if (span.begin < begin || span.end > end) continue;
      spans_.push_back({at + span.begin - begin, at + span.end - begin, span.tokens});
    }
  }
  void AddText(std::string_view text) { text_ += text; }
  void AddRows(std::vector<float> rows, const RowForm& form) {
    parts_.push_back({.tokens = TakeTokens(), .rows = std::move(rows), .form = form});
  }
  std::vector<PromptPart> Finish() {
    AddRows({}, {});
    return std::move(parts_);
  }

 private:
  std::vector<int32_t> TakeTokens() {
    if (text_.empty()) return {};
    ChatContext context;
    context.Become(text_, parts_.empty() ? encoder_ : inside_, spans_);
    text_.clear();
    spans_.clear();
    return context.tokens();
  }

  const PromptEncoder encoder_;
  PromptEncoder inside_;  // for texts after the first embeddings
  const std::string_view whole_;
  const std::span<const TokenSpan> known_;
  std::string text_;
  std::vector<TokenSpan> spans_;
  std::vector<PromptPart> parts_;
};

}  // namespace

EmbeddedRows MarkRows(std::vector<float> rows) {
  EmbeddedRows marked{.mark = StrCat(NewId("<embeddings-"), ">")};
  marked.parts.push_back({.text = "", .rows = std::move(rows)});
  return marked;
}

StatusOr<std::vector<PromptPart>> PartsOfPrompt(const Model& model, std::string_view text,
                                                std::span<const TokenSpan> known,
                                                std::vector<EmbeddedRows> rows) {
  std::vector<std::pair<size_t, EmbeddedRows*>> places;
  for (EmbeddedRows& entry : rows) {
    const size_t at = text.find(entry.mark);
    if (at == text.npos || text.find(entry.mark, at + 1) != text.npos) {
      return WithParam(InvalidArgument("messages: the chat template does not write ",
                                       entry.is_picture ? "pictures" : "vectors", " once"),
                       "messages");
    }
    places.emplace_back(at, &entry);
  }
  std::ranges::sort(places, {}, &std::pair<size_t, EmbeddedRows*>::first);
  PartMaker maker(MakePromptEncoder(model.tokenizer(), model.context_tokens()), text, known);
  size_t from = 0;
  for (const auto& [at, entry] : places) {
    maker.AddText(from, at);
    for (EmbeddedRows::Part& part : entry->parts) {
      maker.AddText(part.text);
      if (!part.rows.empty()) maker.AddRows(std::move(part.rows), part.form);
    }
    from = at + entry->mark.size();
  }
  maker.AddText(from, text.size());
  return maker.Finish();
}

}  // namespace weft::serve
