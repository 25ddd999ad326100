-- evictions: one row per memory that goes because its scope is over the cap; reads survivors, departed, promotions, prunes, clusters, snapshot, policy.
-- The lowest score goes first, with all that was folded into it (unit_id). Empty unless policy.max_memories is set.
with

standing as (
    select v.memory_id, v.scope
    from survivors as v
    where
        not exists (from prunes as u where u.memory_id = v.memory_id and u.action = 'prune')
        and not exists (from promotions as m where m.memory_id = v.memory_id and m.action = 'merge')
),

surplus as (
    select n.scope, count(*) as entries, count(*) - any_value(p.max_memories) as too_many
    from (
        select s.scope from standing as s
        union all
        select d.scope from departed as d where d.action = 'keep'
    ) as n
    cross join policy as p
    group by n.scope
    having count(*) > any_value(p.max_memories)
),

-- what others go into, what is moving on and what a person took back stays, whatever its score
bound as (
    select m.into_id as memory_id from promotions as m where m.action = 'merge'
    union
    select m.memory_id from promotions as m where m.action = 'promote'
    union
    select u.superseded_by from prunes as u where u.action = 'prune' and u.superseded_by is not null
    union
    select v.memory_id from survivors as v where v.is_fixed or v.has_taken_back
),

scored as (
    select
        v.memory_id,
        v.scope,
        -- evo's score: use, recency, kind and confidence. An unknown use or age is not a low one, so it is not scored.
        v.use_count * 10.0
        + greatest(0.0, 30.0 - (epoch_us(p.as_of) - epoch_us(coalesce(v.updated_at, v.created_at))) / 86400000000.0)
        + case s.kind
            when 'constraint' then 20 when 'fact' then 15 when 'preference' then 10
            when 'procedure' then 5 when 'skill' then 5 else 0
        end
        + coalesce(v.confidence * 10.0, 0.0) as score
    from standing as t
    join survivors as v on v.memory_id = t.memory_id
    join snapshot as s on s.memory_id = v.memory_id
    cross join policy as p
    where
        v.use_count is not null
        and epoch_us(p.as_of) - epoch_us(v.created_at) >= coalesce(p.newborn_grace_days, 0) * 86400000000
        and not exists (from bound as b where b.memory_id = v.memory_id)
),

evicted as (
    select
        c.memory_id,
        c.scope,
        c.score,
        o.entries,
        row_number() over (partition by c.scope order by c.score, c.memory_id) as place
    from scored as c
    join surplus as o on o.scope = c.scope
    qualify place <= o.too_many
),

members as (
    select c.memory_id, c.survivor_id
    from clusters as c
    union
    select e.memory_id, e.memory_id
    from evicted as e
)

select
    m.memory_id,
    e.scope,
    e.memory_id as unit_id,
    case
        when m.memory_id <> e.memory_id then 'capacity with ' || e.memory_id
        else 'one of ' || e.entries || ' memories, the cap is ' || p.max_memories || '; its score is ' || round(e.score, 2)
    end as detail,
    e.place::double as fit_order
from evicted as e
join members as m on m.survivor_id = e.memory_id
cross join policy as p
order by m.memory_id
