-- prunes: one row per memory that a rule or a person would remove, and what becomes of it; reads departed, survivors, promotions, clusters, pairs, snapshot, edits, policy.
-- A memory that goes takes along all that was folded into it (unit_id), so that nothing is left for a second pass.
with recursive

-- where the text of each memory stands once every merge is done
homes as (
    select c.memory_id, coalesce(m.into_id, c.survivor_id) as home_id
    from clusters as c
    left join promotions as m on m.memory_id = c.survivor_id and m.action = 'merge'
    where not exists (from departed as d where d.memory_id = c.memory_id)
    union
    select v.memory_id, coalesce(m.into_id, v.memory_id) as home_id
    from survivors as v
    left join promotions as m on m.memory_id = v.memory_id and m.action = 'merge'
),

-- what a person said is to go
condemned as (
    select v.memory_id
    from edits as x
    join survivors as v on v.memory_id = x.memory_id
    where x.decision = 'prune' and not v.is_fixed
),

-- units of which a person took a removal back: they stay whole, as they are
taken_back as (
    select distinct h.home_id as memory_id
    from survivors as v
    join homes as h on h.memory_id = v.memory_id
    where v.has_taken_back
),

steady as (
    select v.memory_id, v.is_fixed, coalesce(s.event_time, s.created_at) as told_at
    from survivors as v
    join homes as h on h.memory_id = v.memory_id and h.home_id = v.memory_id
    join snapshot as s on s.memory_id = v.memory_id
    left join taken_back as b on b.memory_id = v.memory_id
    where
        (not v.is_stale or b.memory_id is not null)
        and not exists (from condemned as x where x.memory_id = v.memory_id)
),

overruled as (
    select o.memory_id as older_id, n.memory_id as newer_id, n.told_at, b.memory_id is not null as is_taken_back
    from pairs as x
    cross join policy as p
    join steady as o on o.memory_id = case x.winner when 'left' then x.right_id when 'right' then x.left_id end
    join steady as n on n.memory_id = case x.winner when 'left' then x.left_id when 'right' then x.right_id end
    left join taken_back as b on b.memory_id = o.memory_id
    where p.supersede = 'archive' and x.verdict = 'supersedes' and x.held is null and not o.is_fixed
),

successors as (
    select o.older_id, o.newer_id
    from overruled as o
    where not o.is_taken_back
    qualify row_number() over (partition by o.older_id order by o.told_at desc nulls last, o.newer_id) = 1
),

trails as (
    select u.older_id, u.newer_id as tip_id from successors as u
    union
    select t.older_id, u.newer_id
    from trails as t
    join successors as u on u.older_id = t.tip_id
),

leaders as (
    select x.memory_id as unit_id, 'by hand' as reason, null as superseded_by, false as is_taken_back
    from condemned as x
    union all
    select v.memory_id, 'stale', null, b.memory_id is not null
    from survivors as v
    left join taken_back as b on b.memory_id = v.memory_id
    where v.is_stale and not exists (from condemned as x where x.memory_id = v.memory_id)
    union all
    -- a trail that leads round in a circle has no tip, and its memories stay
    select t.older_id, 'superseded', t.tip_id, false
    from trails as t
    where not exists (from successors as u where u.older_id = t.tip_id)
    union all
    select distinct o.older_id, 'superseded', null, true
    from overruled as o
    where o.is_taken_back and not exists (from survivors as v where v.memory_id = o.older_id and v.is_stale)
)

select
    d.memory_id,
    d.scope,
    d.memory_id as unit_id,
    d.action,
    null::varchar as superseded_by,
    d.reason,
    d.detail
from departed as d
union all
select
    h.memory_id,
    v.scope,
    l.unit_id,
    case when l.is_taken_back then 'keep' else 'prune' end as action,
    l.superseded_by,
    case when l.is_taken_back then 'held' else l.reason end as reason,
    case
        when l.is_taken_back then l.reason || ', but a person wants to keep it'
        when h.memory_id <> l.unit_id then l.reason || ' with ' || l.unit_id
        else ''
    end as detail
from leaders as l
join homes as h on h.home_id = l.unit_id
join survivors as v on v.memory_id = l.unit_id
order by 1
