#include "engine/speculation/shared_texts.h"

#include <algorithm>
#include <iterator>

namespace weft {

std::shared_ptr<SharedText> SharedTexts::Of(std::string_view domain) {
  const auto [place, is_new] = texts_.try_emplace(std::string(domain));
  if (is_new) place->second = std::make_shared<SharedText>();
  std::shared_ptr<SharedText> text = place->second;
  text->used = ++clock_;
  if (texts_.size() > kMaxDomains) DropLeastUsed();
  return text;
}

void SharedTexts::Add(std::string_view domain, std::span<const TokenId> passage) {
  // A passage this short never matches.
  if (std::ssize(passage) <= NgramIndex::kShortestMatch) return;
  const std::shared_ptr<SharedText> text = Of(domain);
  std::vector<TokenId>& tokens = text->tokens;
  n_tokens_ -= std::ssize(tokens);
  if (std::ssize(passage) > kMaxTokens / 2) passage = passage.last(kMaxTokens / 2);
  if (std::ssize(tokens) + std::ssize(passage) >= kMaxTokens) {
    tokens.erase(tokens.begin(),
                 tokens.end() - std::min<int64_t>(std::ssize(tokens), kMaxTokens / 4));
    text->index.Clear();
    ++text->cuts;
  }
  // Nothing is predicted from input embeddings or across them.
  std::ranges::replace_copy_if(passage, std::back_inserter(tokens), IsRow, kNoToken);
  tokens.push_back(kNoToken);
  n_tokens_ += std::ssize(tokens);
  while (n_tokens_ > kMaxTokensOfAll && texts_.size() > 1) DropLeastUsed();
}

void SharedTexts::DropLeastUsed() {
  const auto oldest = std::min_element(
      texts_.begin(), texts_.end(),
      [](const auto& a, const auto& b) { return a.second->used < b.second->used; });
  n_tokens_ -= std::ssize(oldest->second->tokens);
  texts_.erase(oldest);
}

void SharedTexts::Clear() {
  texts_.clear();
  n_tokens_ = 0;
}

int64_t SharedTexts::memory_bytes() const {
  int64_t bytes = 0;
  for (const auto& [domain, text] : texts_) {
    bytes += static_cast<int64_t>(text->tokens.capacity() * sizeof(TokenId)) +
             text->index.memory_bytes();
  }
  return bytes;
}

}  // namespace weft
