#include "compute/state_store.h"

namespace weft {

Status StateStore::CheckGroup(int group) const {
  if (group >= 0 && group < std::ssize(layout_.page_bytes)) return OkStatus();
  return InvalidArgument("page group ", group, " of ", layout_.page_bytes.size());
}

Status StateStore::CheckPage(int group, PageId page) const {
  WEFT_RETURN_IF_ERROR(CheckGroup(group));
  if (page >= 0 && page < n_pages(group)) return OkStatus();
  return InvalidArgument("page ", page, " of group ", group, ", which has ", n_pages(group));
}

Status StateStore::CheckTokens(int n_tokens) const {
  if (n_tokens >= 0 && n_tokens <= layout_.page_tokens) return OkStatus();
  return InvalidArgument(n_tokens, " tokens of a page of ", layout_.page_tokens);
}

Status StateStore::CheckPageBytes(int group, size_t n_bytes) const {
  const int64_t expected = layout_.page_bytes[static_cast<size_t>(group)];
  if (static_cast<int64_t>(n_bytes) == expected) return OkStatus();
  return InvalidArgument("a page has ", expected, " bytes, not ", n_bytes);
}

Status StateStore::CheckSlot(SlotId slot) const {
  if (layout_.slot_bytes == 0) return Unimplemented("this model has no recurrent state");
  if (slot >= 0 && slot < n_slots()) return OkStatus();
  return InvalidArgument("slot ", slot, " of ", n_slots());
}

Status StateStore::CheckSlotBytes(size_t n_bytes) const {
  if (static_cast<int64_t>(n_bytes) == layout_.slot_bytes) return OkStatus();
  return InvalidArgument("a slot has ", layout_.slot_bytes, " bytes, not ", n_bytes);
}

}  // namespace weft
