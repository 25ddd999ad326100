-- evictions: one row per memory that goes because its scope is over the cap; reads survivors, departed, promotions, prunes, clusters, texts, snapshot, policy.
-- The lowest score goes first, with all that was folded or moved into it or superseded by it (unit_id). Empty unless policy.max_memories is set.
with

-- where each memory that is not pruned stands once every merge is done
homes as (
    select v.memory_id, coalesce(m.into_id, v.memory_id) as home_id
    from survivors as v
    left join promotions as m on m.memory_id = v.memory_id and m.action = 'merge'
    where not exists (from prunes as u where u.memory_id = v.memory_id and u.action = 'prune')
),

standing as (
    select
        h.home_id as memory_id,
        any_value(v.scope) as scope,
        sum(v.use_count) as use_count,
        max(v.confidence) as confidence,
        min(v.created_at) as created_at,
        max(v.updated_at) as updated_at,
        bool_or(v.has_taken_back or (v.is_fixed and v.memory_id = h.home_id)) as stays
    from homes as h
    join survivors as v on v.memory_id = h.memory_id
    group by h.home_id
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

-- what holds a promotion back: were it gone, the next pass would promote what this one was told to leave
obstacles as (
    select distinct coalesce(c.survivor_id, s.memory_id) as memory_id
    from promotions as m
    cross join policy as p
    join texts as t on t.memory_id = m.memory_id
    join texts as x on x.text_key = t.text_key
    join snapshot as s on s.memory_id = x.memory_id and s.scope = m.scope and s.tier = p.promote_to
    left join clusters as c on c.memory_id = s.memory_id
    where m.action = 'keep'
),

scored as (
    select
        t.memory_id,
        t.scope,
        -- evo's score: use, recency, kind and confidence. An unknown use or age is not a low one, so it is not scored.
        t.use_count * 10.0
        + greatest(0.0, 30.0 - (epoch_us(p.as_of) - epoch_us(coalesce(t.updated_at, t.created_at))) / 86400000000.0)
        + case s.kind
            when 'constraint' then 20 when 'fact' then 15 when 'preference' then 10
            when 'procedure' then 5 when 'skill' then 5 else 0
        end
        + coalesce(t.confidence * 10.0, 0.0) as score
    from standing as t
    join snapshot as s on s.memory_id = t.memory_id
    cross join policy as p
    where
        not t.stays
        and not exists (from obstacles as b where b.memory_id = t.memory_id)
        and t.use_count is not null
        and epoch_us(p.as_of) - epoch_us(t.created_at) >= coalesce(p.newborn_grace_days, 0) * 86400000000
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

going as (
    select coalesce(c.memory_id, h.memory_id) as memory_id, h.home_id as unit_id
    from homes as h
    left join clusters as c on c.survivor_id = h.memory_id
    union
    -- what was superseded by a memory that goes as well no longer has a successor
    select u.memory_id, u.superseded_by
    from prunes as u
    where u.action = 'prune' and u.superseded_by is not null
)

select
    g.memory_id,
    e.scope,
    e.memory_id as unit_id,
    case
        when g.memory_id <> e.memory_id then 'capacity with ' || e.memory_id
        else 'one of ' || e.entries || ' memories, the cap is ' || p.max_memories || '; its score is ' || round(e.score, 2)
    end as detail,
    e.place::double as fit_order
from evicted as e
join going as g on g.unit_id = e.memory_id
cross join policy as p
order by g.memory_id
