#include "doors/http/connection_table.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "doors/http/connection.h"

namespace weft::serve {
namespace {

// Refusals for each served connection: one eighth, and at least some.
constexpr size_t kServedPerRefused = 8;
constexpr size_t kMinRefused = 8;
// Files, sockets to listen on, and connections that others than clients open.
constexpr uint64_t kOtherDescriptors = 256;

size_t MaxRefused(size_t max_served) {
  return std::max(kMinRefused, max_served / kServedPerRefused);
}

}  // namespace

ConnectionTable::ConnectionTable(size_t max_served)
    : max_served_(std::max<size_t>(1, max_served)),
      max_of_address_((max_served_ + 1) / 2),
      max_refused_(MaxRefused(max_served_)) {}

ConnectionTable::Verdict ConnectionTable::Judge(const std::string& address) {
  if (MakeRoomFor(address)) return Verdict::kServe;
  return refused_.size() < max_refused_ ? Verdict::kRefuse : Verdict::kTurnAway;
}

bool ConnectionTable::MakeRoomFor(const std::string& address) {
  const auto own = served_.find(address);
  const size_t n_own = own == served_.end() ? 0 : own->second.size();
  if (n_own >= max_of_address_) return CloseWaiting(own->second);
  if (n_served_ < max_served_) return true;
  // From addresses with more connections, otherwise from its own: never from one with fewer.
  std::multimap<size_t, const Connections*, std::greater<>> by_size;
  for (const auto& [name, connections] : served_) {
    if (connections.size() > n_own) by_size.emplace(connections.size(), &connections);
  }
  if (own != served_.end()) by_size.emplace(n_own, &own->second);
  return std::any_of(by_size.begin(), by_size.end(),
                     [](const auto& entry) { return CloseWaiting(*entry.second); });
}

bool ConnectionTable::CloseWaiting(const Connections& connections) {
  std::shared_ptr<HttpConnection> longest;
  std::optional<HttpConnection::HeadWait> wait;
  for (const auto& connection : connections) {
    const auto its = connection->WaitForHead();
    if (!its.has_value() || (wait.has_value() && *wait <= *its)) continue;
    longest = connection;
    wait = its;
  }
  if (longest == nullptr) return false;
  longest->Close();
  return true;
}

void ConnectionTable::Add(std::shared_ptr<HttpConnection> connection, Verdict verdict) {
  if (verdict == Verdict::kRefuse) {
    refused_.insert(std::move(connection));
    return;
  }
  Connections& its = served_[connection->network()];
  its.insert(std::move(connection));
  ++n_served_;
}

void ConnectionTable::Remove(HttpConnection* closed) {
  const auto shared = closed->shared_from_this();
  if (refused_.erase(shared) > 0) return;
  const auto its = served_.find(closed->network());
  if (its == served_.end()) return;
  n_served_ -= its->second.erase(shared);
  if (its->second.empty()) served_.erase(its);
}

std::vector<std::shared_ptr<HttpConnection>> ConnectionTable::All() const {
  std::vector<std::shared_ptr<HttpConnection>> all(refused_.begin(), refused_.end());
  for (const auto& [name, connections] : served_) {
    all.insert(all.end(), connections.begin(), connections.end());
  }
  return all;
}

size_t MaxServedConnections(size_t wanted, uint64_t descriptors) {
  const uint64_t others = std::min(kOtherDescriptors, descriptors / 4);
  const uint64_t for_clients = descriptors - others;
  if (wanted + MaxRefused(wanted) <= for_clients) return wanted;
  const uint64_t with_few = for_clients - std::min<uint64_t>(for_clients, kMinRefused);
  const uint64_t with_many = for_clients / (kServedPerRefused + 1) * kServedPerRefused;
  return static_cast<size_t>(std::max<uint64_t>(1, std::min(with_few, with_many)));
}

}  // namespace weft::serve
