-- survivors: one row per memory that stands once clusters are folded, with its folded values; reads snapshot, departed, clusters, sightings, rejected, policy.
-- A memory without a match is a cluster of one, and its cluster_id is null.
with

taken_back as (
    select distinct s.memory_id
    from rejected as r
    join snapshot as s on s.memory_id = r.memory_id and s.row_digest = r.row_digest
    where r.into_id is null
),

members as (
    select
        s.memory_id,
        coalesce(c.survivor_id, s.memory_id) as survivor_id,
        c.cluster_id,
        s.session_id,
        s.sessions,
        s.use_count,
        s.importance,
        s.confidence,
        s.created_at,
        s.updated_at,
        s.last_used_at,
        s.expires_at,
        b.memory_id is not null as is_taken_back
    from snapshot as s
    left join clusters as c on c.memory_id = s.memory_id
    left join taken_back as b on b.memory_id = s.memory_id
    where not exists (from departed as d where d.memory_id = s.memory_id)
),

seen as (
    select m.survivor_id, unnest(list_append(m.sessions, m.session_id)) as session_id
    from members as m
    where m.session_id is not null or len(m.sessions) > 0
),

session_counts as (
    select e.survivor_id, count(distinct e.session_id) as sessions
    from seen as e
    group by e.survivor_id
),

-- the batches that tell a memory again; the one that it was born in tells nothing new
evidence as (
    select g.memory_id, count(*) filter (where not g.is_birth) as batches
    from sightings as g
    group by g.memory_id
),

folded as (
    select
        m.survivor_id,
        any_value(m.cluster_id) as cluster_id,
        count(*) as members,
        -- least() would make an unknown count the largest there is
        case when count(m.use_count) > 0 then least(sum(m.use_count), 9223372036854775807) end::bigint as use_count,
        max(m.importance) as importance,
        max(m.confidence) as confidence,
        min(m.created_at) as created_at,
        max(m.updated_at) as updated_at,
        max(m.last_used_at) as last_used_at,
        -- one member that never expires makes the memory one that never expires
        case when count(m.expires_at) = count(*) then max(m.expires_at) end as expires_at,
        bool_or(m.is_taken_back) as has_taken_back,
        bool_or(m.is_taken_back and m.memory_id = m.survivor_id) as is_taken_back
    from members as m
    group by m.survivor_id
)

select
    f.survivor_id as memory_id,
    s.scope,
    f.cluster_id,
    f.members,
    f.use_count,
    f.importance,
    f.confidence,
    f.created_at,
    f.updated_at,
    f.last_used_at,
    f.expires_at,
    coalesce(n.sessions, 0) as sessions,
    coalesce(e.batches, 0) as evidence,
    s.pinned or s.protected as is_fixed,
    f.is_taken_back,
    f.has_taken_back,
    -- Each threshold that is set must be known and hold; an unknown value makes nothing stale. Idle counts from
    -- last_used_at alone: an edit is no use, and a store that keeps no such time knows nothing about idleness.
    coalesce(
        not (s.pinned or s.protected)
        and coalesce(
            p.stale_min_age_days, p.stale_min_idle_days, p.stale_max_use_count, p.stale_max_importance
        ) is not null
        and (len(p.stale_kinds) = 0 or list_contains(p.stale_kinds, s.kind))
        and (
            p.stale_min_age_days is null
            or epoch_us(p.as_of) - epoch_us(f.created_at) >= p.stale_min_age_days * 86400000000
        )
        and (
            p.stale_min_idle_days is null
            or epoch_us(p.as_of) - epoch_us(f.last_used_at) >= p.stale_min_idle_days * 86400000000
        )
        and (p.stale_max_use_count is null or f.use_count <= p.stale_max_use_count)
        and (p.stale_max_importance is null or f.importance <= p.stale_max_importance),
        false
    ) as is_stale,
    coalesce(
        s.tier = p.promote_from
        and coalesce(
            p.promote_min_sessions, p.promote_min_use_count, p.promote_min_age_days, p.promote_min_evidence
        ) is not null
        and (p.promote_min_sessions is null or coalesce(n.sessions, 0) >= p.promote_min_sessions)
        and (p.promote_min_evidence is null or coalesce(e.batches, 0) >= p.promote_min_evidence)
        and (p.promote_min_use_count is null or f.use_count >= p.promote_min_use_count)
        and (
            p.promote_min_age_days is null
            or epoch_us(p.as_of) - epoch_us(f.created_at) >= p.promote_min_age_days * 86400000000
        ),
        false
    ) as is_promotable
from folded as f
join snapshot as s on s.memory_id = f.survivor_id
left join session_counts as n on n.survivor_id = f.survivor_id
left join evidence as e on e.memory_id = f.survivor_id
cross join policy as p
order by f.survivor_id
