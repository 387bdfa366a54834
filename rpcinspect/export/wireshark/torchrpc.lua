-- Messages of torch.distributed.rpc in Wireshark: fields, filters, columns and links, beside what it says of
-- TCP itself. `rpcinspect export wireshark` has written this file, and torchrpc.tsv, the table of the messages
-- of one run; docs/wireshark.md explains the fields. Nothing here depends on what was captured.
--
--     wireshark -X lua_script:FOLDER/torchrpc.lua run.pcap
--
-- Lines of the table, their parts separated by tabs:
--     messages-of-torch-rpc 1                                    the first line, with the version
--     M  index  request  type  from  to  function  call  partner  parent  latency_ns  context  error  findings
--        tensors  housekeeping  line                             a message
--     P  capture  index  packets  time  first  first time        packets of a message in a capture, as
--                                                                3-5,9; `first` has its first byte, or is 0

local folder = __DIR__ or debug.getinfo(1, "S").source:match("^@?(.*)[/\\]") or "."
local path = folder .. "/torchrpc.tsv"

local protocol = Proto("torchrpc", "torch.distributed.rpc")
local field = {
    number = ProtoField.uint32("torchrpc.number", "Message", base.DEC, nil, nil, "As rpcinspect numbers it"),
    type = ProtoField.string("torchrpc.type", "Type"),
    request = ProtoField.bool("torchrpc.request", "Is a request"),
    from = ProtoField.string("torchrpc.from", "From"),
    to = ProtoField.string("torchrpc.to", "To"),
    func = ProtoField.string("torchrpc.function", "Function", base.UNICODE, "Of an answer: its request's"),
    call = ProtoField.string("torchrpc.call", "Call", base.UNICODE, "Who is called, as a person says it"),
    answer_in = ProtoField.framenum("torchrpc.answer_in", "Answer in", base.NONE, frametype.RESPONSE),
    request_in = ProtoField.framenum("torchrpc.request_in", "Request in", base.NONE, frametype.REQUEST),
    parent_in = ProtoField.framenum("torchrpc.parent_in", "Sent to serve the request in", base.NONE),
    latency = ProtoField.relative_time("torchrpc.latency", "Latency",
        "From the request's first byte to its answer's last"),
    context = ProtoField.string("torchrpc.context", "Autograd context"),
    fault = ProtoField.string("torchrpc.error", "Error"),
    finding = ProtoField.string("torchrpc.finding", "Finding"),
    tensors = ProtoField.uint32("torchrpc.tensors", "Tensors"),
    housekeeping = ProtoField.bool("torchrpc.housekeeping", "Housekeeping of the agents"),
    last = ProtoField.framenum("torchrpc.last_packet", "Last packet", base.NONE),
    part = ProtoField.uint32("torchrpc.part", "Carries bytes of message", base.DEC, nil, nil,
        "Of every packet with bytes of a message, retransmissions included"),
    begins_in = ProtoField.framenum("torchrpc.begins_in", "Which begins in", base.NONE),
}
local fields = {}
for _, one in pairs(field) do fields[#fields + 1] = one end
protocol.fields = fields

local failed = ProtoExpert.new("torchrpc.failed", "The answer reports an error",
    expert.group.RESPONSE_CODE, expert.severity.WARN)
local other_capture = ProtoExpert.new("torchrpc.other_capture",
    "The table of messages is not of this capture: export it again from this file",
    expert.group.PROTOCOL, expert.severity.ERROR)
protocol.experts = { failed, other_capture }

local messages = {}  -- index → its line in the table
local captures = {}  -- capture → parts, heads, first, last, times, each by packet or by message

local function split(line)
    local parts = {}
    for part in (line .. "\t"):gmatch("([^\t]*)\t") do parts[#parts + 1] = part end
    return parts
end

local function put(list, packet, index)
    local there = list[packet]
    if there == nil then
        list[packet] = index
    elseif type(there) == "table" then
        there[#there + 1] = index
    else
        list[packet] = { there, index }
    end
end

local function each(there)
    return ipairs(type(there) == "table" and there or { there })
end

local function take_packets(line)
    local _, number, index, packets, head, time, first, first_time = table.unpack(split(line))
    number, index, head, first = tonumber(number), tonumber(index), tonumber(head), tonumber(first)
    local capture = captures[number]
    if capture == nil then
        capture = { parts = {}, heads = {}, begins = {}, last = {}, times = {} }
        captures[number] = capture
    end
    local last
    for low, high in packets:gmatch("(%d+)%-?(%d*)") do
        last = tonumber(high) or tonumber(low)
        for packet = tonumber(low), last do put(capture.parts, packet, index) end
    end
    capture.last[index] = last
    capture.times[first] = tonumber(first_time)
    if head > 0 then
        put(capture.heads, head, index)
        capture.begins[index] = head
        capture.times[head] = tonumber(time)
    end
end

local function load_table()
    local file = assert(io.open(path, "rb"))
    assert(file:read("*l") == "messages-of-torch-rpc 1", path .. " is not the table that belongs to this file")
    for line in file:lines() do
        local kind, index = line:match("^(%u)\t(%d+)\t")
        if kind == "M" then
            messages[tonumber(index)] = line
        else
            take_packets(line)
        end
    end
    file:close()
end

load_table()

local open      -- the capture of the table that is open; nil until a packet has told
local excluded  -- captures of the table that are not

function protocol.init()
    open, excluded = nil, {}
end

-- Compares a packet with that of its number in the table, which has the times of many: to the microsecond, since
-- times are floats here. Returns whether none of the captures of the table is open, as this packet shows.
local function is_other(packet, time)
    local other, left = false, false
    for number, capture in pairs(captures) do
        local told = not (open and open ~= number) and capture.times[packet]
        if told and math.abs(told - time) > 0.000002 then
            other, excluded[number] = true, true
        elseif told and not excluded[number] then
            open = number
            return false
        end
        left = left or not excluded[number]
    end
    if open and excluded[open] then
        for number in pairs(captures) do excluded[number] = true end
        open, left = nil, false
    end
    return other and not left
end

local function add_link(tree, kind, index)
    local packet = index and captures[open].begins[index]
    if packet then tree:add(kind, packet):set_generated() end
end

local function describe(tree, index)
    local _, _, request, kind, from, to, func, call, partner, parent, latency, context, fault, findings,
        tensors, housekeeping, line = table.unpack(split(messages[index]))
    request = request == "1"
    local item = tree:add(protocol, "torch.distributed.rpc " .. line)
    item:add(field.number, index)
    item:add(field.type, kind)
    item:add(field.request, request)
    item:add(field.from, from)
    item:add(field.to, to)
    if func ~= "" then item:add(field.func, func) end
    if call ~= "" then item:add(field.call, call) end
    add_link(item, request and field.answer_in or field.request_in, tonumber(partner))
    add_link(item, field.parent_in, tonumber(parent))
    latency = tonumber(latency)
    if latency then item:add(field.latency, NSTime(math.floor(latency / 1e9), latency % 1000000000)) end
    if context ~= "" then item:add(field.context, context) end
    if fault ~= "" then
        item:add(field.fault, fault)
        item:add_proto_expert_info(failed, fault)
    end
    for finding in findings:gmatch("[^ ]+") do item:add(field.finding, finding) end
    item:add(field.tensors, tonumber(tensors))
    item:add(field.housekeeping, housekeeping == "1")
    item:add(field.last, captures[open].last[index]):set_generated()
    return line
end

function protocol.dissector(_, pinfo, tree)
    local packet = pinfo.number
    if is_other(packet, pinfo.abs_ts) then
        tree:add(protocol, "torch.distributed.rpc: unknown"):add_proto_expert_info(other_capture)
        pinfo.cols.info:prepend("[torchrpc.tsv is of another capture] ")
        return
    end
    local parts = open and captures[open].parts[packet]
    if not parts then return end
    local heads, lines = {}, {}
    for _, index in each(captures[open].heads[packet]) do
        heads[index] = true
        lines[#lines + 1] = describe(tree, index)
    end
    for _, index in each(parts) do
        local item = tree:add(field.part, index)
        if not heads[index] then
            add_link(item, field.begins_in, index)
            lines[#lines + 1] = "part of #" .. index
        end
        item:set_generated()
    end
    pinfo.cols.protocol = "TorchRPC"
    pinfo.cols.info:prepend(table.concat(lines, "; ") .. " | ")
end

register_postdissector(protocol)
