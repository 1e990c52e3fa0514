-- The health of an object of the provider in Argo CD, by its condition Ready. Reconciling and Stalled say whether a problem
-- ends without a change.
local health = { status = "Progressing", message = "waiting for the manager" }
if obj.metadata.deletionTimestamp ~= nil then
  health.message = "it is being deleted"
  return health
end
local annotations = obj.metadata.annotations or {}
if annotations["cluster.x-k8s.io/paused"] ~= nil then
  return { status = "Suspended", message = "it is paused" }
end
local status = obj.status or {}
if status.addressRef ~= nil then
  return { status = "Healthy", message = "bound to IPAddress " .. status.addressRef.name }
end
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local ready = conditions.Ready
if ready == nil then
  return health
end
local observed = ready.observedGeneration or status.observedGeneration
if observed ~= nil and obj.metadata.generation ~= nil and observed < obj.metadata.generation then
  return health
end
health.message = ready.message or ""
if ready.status == "True" then
  health.status = "Healthy"
elseif conditions.Stalled ~= nil and conditions.Stalled.status == "True" then
  health.status = "Degraded"
elseif obj.kind ~= "IPAddressClaim" and conditions.Reconciling == nil then
  health.status = "Degraded"
end
return health
